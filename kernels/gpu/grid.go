//go:build cgo

package gpu

// grid is the shape of a dispatch: threadgroups, and threads per threadgroup.
type grid struct {
	groups, threads [3]int
	// work is what the threads do.
	work work
	// shared is the bytes of threadgroup memory at index 0, a multiple of 16.
	shared int
}

// lines is a grid of groups of threads along one dimension.
func lines(groups, threads int) grid {
	return grid{groups: [3]int{groups, 1, 1}, threads: [3]int{threads, 1, 1}}
}

// elementThreads is the threads of a group of elements.
const elementThreads = 256

// elements is a grid of at least n threads.
func elements(n int) grid { return lines(above(n, elementThreads), elementThreads) }

// columns is a grid of one thread per column (or vector of 4 columns) and row.
func columns(cols, rows int, vectors bool) grid {
	if vectors {
		cols /= 4
	}
	threads := threadsFor(cols, 256)
	return grid{groups: [3]int{above(cols, threads), rows, 1}, threads: [3]int{threads, 1, 1}}
}

// threadsFor is the number of threads for n work items: whole simdgroups, at most
// `most`.
func threadsFor(n, most int) int { return max(32, min(most, 32*above(n, 32))) }

// above is n/d, rounded up.
func above(n, d int) int { return (n + d - 1) / d }

// sharedFloats is the bytes of threadgroup memory for n floats.
func sharedFloats(n int) int { return 16 * above(n, 4) }
