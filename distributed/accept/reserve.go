package accept

import (
	"os"
	"sync"
)

// reserved is how many files Hold keeps for connections that arrive when all
// others are in use. The process listens on four ports (HTTP, control, data,
// liveness); the reserve has one file for each, and as many again for the
// handshakes on them.
const reserved = 8

// reserve holds open files. Next gives one up when no other is left for a waiting
// connection, so that a full table refuses connections instead of leaving them
// unanswered, and a rank that returns can still join. The process has one reserve
// because it has one table of files.
type reserve struct {
	mu    sync.Mutex
	want  int // files to hold
	files []*os.File
}

var spare reserve

// Hold makes Next keep a reserve of files for this process, as far as files are
// free. It returns a function that releases them. A server calls it once, before
// strangers can reach it.
func Hold() (release func()) {
	spare.set(reserved)
	return func() { spare.set(0) }
}

// set changes how many files to hold.
func (r *reserve) set(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = n
	for len(r.files) > n {
		r.drop()
	}
	r.fill()
}

// give closes a file of the reserve, so that a connection can use its place.
func (r *reserve) give() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) > 0 {
		r.drop()
	}
}

// refill replaces the files that were given up, as far as files are free again.
func (r *reserve) refill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fill()
}

// fill does what refill does; mu is held.
func (r *reserve) fill() {
	for len(r.files) < r.want {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // no file is free yet; the next connection tries again
		}
		r.files = append(r.files, f)
	}
}

// drop closes the last file; mu is held.
func (r *reserve) drop() {
	last := len(r.files) - 1
	_ = r.files[last].Close()
	r.files = r.files[:last]
}
