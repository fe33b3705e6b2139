// Splits the world repeatedly with MPI_Comm_split and prints which ranks ended up
// together. It reads tables from the file given as its argument:
//
//	tables levels
//	then for each table and level: color and key of each rank of the world
//
// A color of -1 is MPI_UNDEFINED. A key below 0 stands for the rank in the
// communicator that is split. Level 0 splits the world, every further level the
// communicator of the level before; a rank without one stays out from there on.
// For each table and level, rank 0 prints a line with the members of each rank's
// communicator, in their order, as world ranks: "0,2;1,3;0,2;1,3", with - for no
// communicator.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void die(const char *what) {
	fprintf(stderr, "split: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static int number(FILE *f) {
	int v;
	if (fscanf(f, "%d", &v) != 1) {
		die("the table ends early");
	}
	return v;
}

int main(int argc, char **argv) {
	int rank, size;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
	if (f == NULL) {
		die("give a file of tables");
	}
	// members[0] is the number of members, which follow; one row for each rank.
	int *members = malloc(sizeof(int) * (size_t)(size + 1));
	int *all = malloc(sizeof(int) * (size_t)(size + 1) * (size_t)size);
	if (members == NULL || all == NULL) {
		die("no memory");
	}
	const int tables = number(f), levels = number(f);
	for (int t = 0; t < tables; t++) {
		MPI_Comm comms[16];
		if (levels > 15) {
			die("too many levels");
		}
		comms[0] = MPI_COMM_WORLD;
		for (int l = 0; l < levels; l++) {
			int color = 0, key = 0;
			for (int r = 0; r < size; r++) {
				int c = number(f), k = number(f);
				if (r == rank) {
					color = c;
					key = k;
				}
			}
			comms[l + 1] = MPI_COMM_NULL;
			members[0] = 0;
			if (comms[l] != MPI_COMM_NULL) {
				int own;
				MPI_Comm_rank(comms[l], &own);
				MPI_Comm_split(comms[l], color < 0 ? MPI_UNDEFINED : color, key < 0 ? own : key, &comms[l + 1]);
			}
			if (comms[l + 1] != MPI_COMM_NULL) {
				MPI_Comm_size(comms[l + 1], &members[0]);
				MPI_Allgather(&rank, 1, MPI_INT, members + 1, 1, MPI_INT, comms[l + 1]);
			}
			MPI_Gather(members, size + 1, MPI_INT, all, size + 1, MPI_INT, 0, MPI_COMM_WORLD);
			for (int r = 0; rank == 0 && r < size; r++) {
				const int *row = all + r * (size + 1);
				for (int i = 0; i < row[0]; i++) {
					printf("%s%d", i > 0 ? "," : "", row[1 + i]);
				}
				printf("%s%s", row[0] == 0 ? "-" : "", r + 1 < size ? ";" : "\n");
			}
		}
		for (int l = levels; l > 0; l--) {
			if (comms[l] != MPI_COMM_NULL) {
				MPI_Comm_free(&comms[l]);
			}
		}
	}
	fclose(f);
	free(members);
	free(all);
	MPI_Finalize();
	return 0;
}
