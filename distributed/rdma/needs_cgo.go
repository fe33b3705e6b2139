//go:build cgo && (linux || darwin)

package rdma

/*
#include "engine.h"
*/
import "C"

import "unsafe"

// needs tells whether something is still to be sent to a rank, or to come from
// it: what has come and waits for its turn is there.
func (j *job) needs(peer int) bool {
	for _, w := range unsafe.Slice(j.c.wires, int(j.c.nwires)) {
		if w.op < 0 || j.ends[w.conn].peer != peer {
			continue
		}
		c := j.ends[w.conn].c
		head := w.begun != 0 || c.head_in != 0
		if w.recv != 1 || !head || int64(c.came) < int64(w.base)+int64(w.data) {
			return true
		}
	}
	return false
}
