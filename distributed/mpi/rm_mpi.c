//go:build !static

#include "rm_mpi.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

// Constants and struct layout of Open MPI's mpi.h, unchanged since version 1.7.
enum {
	MPI_SUCCESS = 0,
	MPI_ANY_SOURCE = -1,
	MPI_THREAD_SERIALIZED = 2,
};

struct status {
	int source, tag, error, cancelled;
	size_t count;
};

// The functions and objects, under their names in the library.
static struct {
	int (*Get_library_version)(char *, int *);
	int (*Error_string)(int, char *, int *);
	int (*Init_thread)(int *, char ***, int, int *);
	int (*Initialized)(int *);
	int (*Finalize)(void);
	int (*Comm_set_errhandler)(void *, void *);
	int (*Comm_rank)(void *, int *);
	int (*Comm_size)(void *, int *);
	int (*Comm_idup)(void *, void **, void **);
	int (*Get_processor_name)(char *, int *);
	int (*Isend)(const void *, int, void *, int, int, void *, void **);
	int (*Issend)(const void *, int, void *, int, int, void *, void **);
	int (*Irecv)(void *, int, void *, int, int, void *, void **);
	int (*Test)(void **, int *, struct status *);
	int (*Cancel)(void **);
	int (*Iprobe)(int, int, void *, int *, struct status *);
	int (*Get_count)(const struct status *, void *, int *);
	void *world, *byte, *errors_return;
} mpi;

static char text[RM_MPI_TEXT];

const char *rm_mpi_text(void) { return text; }

// failed saves MPI's text for the return code of a function, and returns -1.
static int failed(const char *what, int code) {
	char why[RM_MPI_TEXT / 2] = "";
	int len = 0;
	if (mpi.Error_string(code, why, &len) != MPI_SUCCESS || len <= 0) {
		snprintf(why, sizeof why, "code %d", code);
	}
	snprintf(text, sizeof text, "MPI_%s: %s", what, why);
	return -1;
}

int rm_mpi_load(const char *name, char out[RM_MPI_TEXT]) {
	// GLOBAL, because the library's own plug-ins look up its symbols there.
	void *lib = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
	if (lib == NULL) {
		const char *why = dlerror();
		snprintf(out, RM_MPI_TEXT, "%s", why != NULL ? why : name);
		return RM_MPI_NO_LIBRARY;
	}
	// ISO C has no cast from an object pointer to a function pointer, but
	// dlsym is POSIX, so the bytes are copied.
	void *f = dlsym(lib, "MPI_Get_library_version");
	memcpy(&mpi.Get_library_version, &f, sizeof f);
	char version[8192] = ""; // longer than any library's limit
	int len = 0;
	if (f == NULL || mpi.Get_library_version(version, &len) != MPI_SUCCESS) {
		snprintf(out, RM_MPI_TEXT, "a library without MPI_Get_library_version");
		dlclose(lib);
		return RM_MPI_FOREIGN;
	}
	snprintf(out, RM_MPI_TEXT, "%.*s", (int)strcspn(version, "\r\n,"), version);
	if (strstr(version, "Open MPI") == NULL) {
		dlclose(lib);
		return RM_MPI_FOREIGN;
	}
	const struct {
		const char *name;
		void *place;
	} symbols[] = {
	    {"MPI_Error_string", &mpi.Error_string},
	    {"MPI_Init_thread", &mpi.Init_thread},
	    {"MPI_Initialized", &mpi.Initialized},
	    {"MPI_Finalize", &mpi.Finalize},
	    {"MPI_Comm_set_errhandler", &mpi.Comm_set_errhandler},
	    {"MPI_Comm_rank", &mpi.Comm_rank},
	    {"MPI_Comm_size", &mpi.Comm_size},
	    {"MPI_Comm_idup", &mpi.Comm_idup},
	    {"MPI_Get_processor_name", &mpi.Get_processor_name},
	    {"MPI_Isend", &mpi.Isend},
	    {"MPI_Issend", &mpi.Issend},
	    {"MPI_Irecv", &mpi.Irecv},
	    {"MPI_Test", &mpi.Test},
	    {"MPI_Cancel", &mpi.Cancel},
	    {"MPI_Iprobe", &mpi.Iprobe},
	    {"MPI_Get_count", &mpi.Get_count},
	    {"ompi_mpi_comm_world", &mpi.world},
	    {"ompi_mpi_byte", &mpi.byte},
	    {"ompi_mpi_errors_return", &mpi.errors_return},
	};
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		void *p = dlsym(lib, symbols[i].name);
		if (p == NULL) {
			size_t used = strlen(out);
			snprintf(out + used, RM_MPI_TEXT - used, ", without the symbol %s", symbols[i].name);
			dlclose(lib);
			return RM_MPI_FOREIGN;
		}
		memcpy(symbols[i].place, &p, sizeof p);
	}
	return 0;
}

int rm_mpi_init(int *rank, int *size) {
	// Open MPI installs its own handlers for these signals. They cannot run
	// on Go's small stacks, and Go turns these signals into panics, so its
	// handlers are restored.
	static const int taken[] = {SIGABRT, SIGBUS, SIGFPE, SIGSEGV};
	struct sigaction kept[sizeof taken / sizeof taken[0]];
	for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
		sigaction(taken[i], NULL, &kept[i]);
	}
	int level = 0;
	int code = mpi.Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
	for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
		sigaction(taken[i], &kept[i], NULL);
	}
	if (code != MPI_SUCCESS) {
		return failed("Init_thread", code);
	}
	if (level < MPI_THREAD_SERIALIZED) {
		snprintf(text, sizeof text, "MPI_Init_thread: this library allows thread level %d, not MPI_THREAD_SERIALIZED", level);
		return -1;
	}
	if (rm_mpi_quiet(NULL) != 0) {
		return -1;
	}
	if ((code = mpi.Comm_rank(mpi.world, rank)) != MPI_SUCCESS) {
		return failed("Comm_rank", code);
	}
	if ((code = mpi.Comm_size(mpi.world, size)) != MPI_SUCCESS) {
		return failed("Comm_size", code);
	}
	return 0;
}

int rm_mpi_host(char out[RM_MPI_TEXT]) {
	char name[8192] = "";
	int len = 0, code = mpi.Get_processor_name(name, &len);
	if (code != MPI_SUCCESS) {
		return failed("Get_processor_name", code);
	}
	snprintf(out, RM_MPI_TEXT, "%.*s", RM_MPI_TEXT - 1, name);
	return 0;
}

int rm_mpi_quiet(void *comm) {
	int code = mpi.Comm_set_errhandler(comm != NULL ? comm : mpi.world, mpi.errors_return);
	return code == MPI_SUCCESS ? 0 : failed("Comm_set_errhandler", code);
}

int rm_mpi_dup(void *comm, void **made, struct rm_msg *m) {
	m->send = 1; // not a receive, so that no bytes are counted
	int code = mpi.Comm_idup(comm != NULL ? comm : mpi.world, made, &m->request);
	if (code != MPI_SUCCESS) {
		return failed("Comm_idup", code);
	}
	m->state = RM_MSG_POSTED;
	return 0;
}

int rm_mpi_cancel(struct rm_msg *m) {
	int code = mpi.Cancel(&m->request);
	return code == MPI_SUCCESS ? 0 : failed("Cancel", code);
}

int rm_mpi_idle(void *comm) {
	int flag = 0;
	struct status s;
	// No message has this tag; the probe is called only because it makes MPI
	// progress.
	int code = mpi.Iprobe(MPI_ANY_SOURCE, 32767, comm, &flag, &s);
	return code == MPI_SUCCESS ? 0 : failed("Iprobe", code);
}

int rm_mpi_finalize(void) {
	int code = mpi.Finalize();
	return code == MPI_SUCCESS ? 0 : failed("Finalize", code);
}

// start posts a message.
static int start(void *comm, struct rm_msg *m) {
	int code;
	if (m->send == RM_SEND_MATCHED) {
		code = mpi.Issend(m->data, m->count, mpi.byte, m->peer, m->tag, comm, &m->request);
	} else if (m->send) {
		code = mpi.Isend(m->data, m->count, mpi.byte, m->peer, m->tag, comm, &m->request);
	} else {
		code = mpi.Irecv(m->data, m->count, mpi.byte, m->peer, m->tag, comm, &m->request);
	}
	if (code != MPI_SUCCESS) {
		return failed(m->send ? "Isend" : "Irecv", code);
	}
	m->state = RM_MSG_POSTED;
	return 0;
}

// test checks whether a message has ended: 1 if so, 0 if not, -1 for an error.
static int test(struct rm_msg *m) {
	struct status s = {0, 0, 0, 0, 0};
	int flag = 0, got = 0;
	int code = mpi.Test(&m->request, &flag, &s);
	if (code != MPI_SUCCESS) {
		m->state = RM_MSG_DONE; // MPI has freed the request
		return failed("Test", code);
	}
	if (!flag) {
		return 0;
	}
	m->state = RM_MSG_DONE;
	if (!m->send) {
		if ((code = mpi.Get_count(&s, mpi.byte, &got)) != MPI_SUCCESS) {
			return failed("Get_count", code);
		}
		m->got = got;
		m->peer = s.source;
	}
	return 1;
}

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int rm_mpi_progress(void *comm, struct rm_msg *m, int n, struct rm_msg *watch, const int32_t *stop, int any, int64_t spin,
                    int64_t limit) {
	for (int i = 0; i < n; i++) { // receives first, so that arriving data finds a posted buffer
		if (m[i].state == RM_MSG_POST && !m[i].send && start(comm, &m[i]) != 0) {
			return RM_MPI_ERROR;
		}
	}
	if (watch != NULL && watch->state == RM_MSG_POST && start(comm, watch) != 0) {
		return RM_MPI_ERROR;
	}
	for (int i = 0; i < n; i++) {
		if (m[i].state == RM_MSG_POST && start(comm, &m[i]) != 0) {
			return RM_MPI_ERROR;
		}
	}
	const int64_t begun = now();
	for (unsigned round = 0;; round++) {
		int open = 0, fresh = 0;
		for (int i = 0; i < n; i++) {
			if (m[i].state != RM_MSG_POSTED) {
				continue;
			}
			switch (test(&m[i])) {
			case 0:
				open++;
				break;
			case 1:
				fresh++;
				break;
			default:
				return RM_MPI_ERROR;
			}
		}
		if (open == 0 || (any && fresh > 0)) {
			return RM_MPI_DONE;
		}
		if (__atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0) {
			return RM_MPI_STOPPED;
		}
		if (watch != NULL && watch->state == RM_MSG_POSTED && round % 8 == 7) {
			int ended = test(watch);
			if (ended != 0) {
				return ended > 0 ? RM_MPI_WATCHED : RM_MPI_ERROR;
			}
		}
		const int64_t age = now() - begun;
		if (age >= limit) {
			return RM_MPI_LATE;
		}
		if (age > spin + 200000 || spin == 0) {
			struct timespec nap = {0, age > 20000000 ? 200000 : 50000};
			nanosleep(&nap, NULL);
		} else if (age > spin) {
			sched_yield();
		}
	}
}
