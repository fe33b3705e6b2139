package accept

import (
	"os"
	"sync"
)

// reserved is how many files Hold keeps for connections that come when all others
// are in use: one for each port of the process that listens (HTTP, control, data,
// liveness), and as many again for the handshakes on them.
const reserved = 8

// reserve holds open files, which Next gives up one at a time when none is left
// for a connection that waits. So a full table refuses connections instead of
// leaving them unanswered, and a rank that returns still gets in. The table
// belongs to the process, and so does the reserve.
type reserve struct {
	mu    sync.Mutex
	want  int // files to hold
	files []*os.File
}

var spare reserve

// Hold makes Next keep a reserve of files for this process, as far as there are
// any; it returns a function that gives them back. A server calls it once, before
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

// give closes a file of the reserve, for a connection to take its place.
func (r *reserve) give() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) > 0 {
		r.drop()
	}
}

// refill takes back what was given, as far as files are free again.
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
			return // still lacking; the next connection tries again
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
