package mpi

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/internal/testenv"
)

// table holds the colors and keys of nested splits: [level][world rank].
type table struct{ colors, keys [][]int }

func randomTable(r *rand.Rand, n, levels int) table {
	var t table
	for range levels {
		kinds := 1 + r.IntN(3)
		colors, keys := make([]int, n), make([]int, n)
		for i := range n {
			colors[i] = r.IntN(kinds) * (1 + r.IntN(2)*1000000)
			if r.IntN(8) == 0 {
				colors[i] = distributed.Undefined
			}
			keys[i] = r.IntN(n+2) - 2 // some below 0, many of them equal
		}
		t.colors, t.keys = append(t.colors, colors), append(t.keys, keys)
	}
	return t
}

// ours formats what Members computes for a table in the same way as the C
// program.
func ours(t table, n int) []string {
	var lines []string
	of := make([][]int, n) // the members of each rank's group
	for r := range n {
		for m := range n {
			of[r] = append(of[r], m)
		}
	}
	for level := range t.colors {
		next := make([][]int, n)
		for r, members := range of {
			if members == nil {
				continue
			}
			colors, keys := make([]int, len(members)), make([]int, len(members))
			for i, m := range members {
				colors[i], keys[i] = t.colors[level][m], t.keys[level][m]
			}
			for _, part := range distributed.Members(colors, keys) {
				var child []int
				in := false
				for _, i := range part.Members {
					child = append(child, members[i])
					in = in || members[i] == r
				}
				if in {
					next[r] = child
				}
			}
		}
		of = next
		words := make([]string, n)
		for r, members := range of {
			words[r] = "-"
			if members != nil {
				words[r] = strings.ReplaceAll(strings.Trim(fmt.Sprint(members), "[]"), " ", ",")
			}
		}
		lines = append(lines, strings.Join(words, ";"))
	}
	return lines
}

// TestMembersAgainstMPI compares distributed.Members, which all transports use
// to split, with MPI_Comm_split: random tables for 2 to 8 ranks, each three
// levels deep.
func TestMembersAgainstMPI(t *testing.T) {
	needMPI(t)
	cc := testenv.NeedTool(t, "mpicc", "no mpicc here (Debian: libopenmpi-dev)")
	dir := t.TempDir()
	program := filepath.Join(dir, "split")
	out, err := exec.CommandContext(t.Context(), cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1",
		"-o", program, filepath.Join("testdata", "split.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	const tables, levels = 40, 3
	for n := 2; n <= 8; n++ {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			if n > 3 { // MPI waits by polling, which takes a processor per rank
				testenv.Need(t, testenv.Full, "members of more than three ranks")
			}
			r := rand.New(rand.NewPCG(uint64(n), 8))
			var text strings.Builder
			var want []string
			fmt.Fprintln(&text, tables, levels)
			for range tables {
				tb := randomTable(r, n, levels)
				for l := range levels {
					for i := range n {
						fmt.Fprint(&text, tb.colors[l][i], " ", tb.keys[l][i], " ")
					}
					fmt.Fprintln(&text)
				}
				want = append(want, ours(tb, n)...)
			}
			file := testenv.WriteFile(t, filepath.Join(dir, fmt.Sprintf("tables%d", n)), text.String())
			ctx := testenv.Within(t, 2*time.Minute)
			cmd := mpirun(ctx, n, "--mca", "mpi_yield_when_idle", "1", program, file)
			var problems strings.Builder
			cmd.Stderr = &problems
			out, err := cmd.Output()
			require.NoError(t, err, "%s", problems.String())
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			require.Len(t, got, len(want))
			for i := range want {
				require.Equal(t, got[i], want[i], "table %d, level %d: MPI_Comm_split first", i/levels, i%levels)
			}
		})
	}
}
