//go:build cgo

package gpu

// #include "device.h"
import "C"

import "time"

// How Flush waits. Waking a thread that sleeps in the driver takes 150 to 200 us on a Mac
// (github.com/ml-explore/mlx/issues/1773), as much as a third of a layer's work and once for
// each exchange of a group, so that Flush polls as long as the work is expected to take. Longer
// work is worth a sleep. A step of a large model on a slow host takes seconds; one that takes
// minutes hangs.
const (
	leastPolling = 200 * time.Microsecond
	mostPolling  = 5 * time.Millisecond
	deadline     = 5 * 60 * 1000 // milliseconds
)

// waitPolicy has a deadline in milliseconds.
func waitPolicy(deadline int) C.rmg_wait_policy {
	return C.rmg_wait_policy{deadline_ms: C.uint32_t(deadline)}
}

// learnt is the weight of the last wait in pace.
const learnt = 0.25

// polling is how long to poll for what was committed: as long as it is expected to take,
// and as long again, because pace is a mean.
func (b *Backend) polling() time.Duration {
	if b.leastPolling == 0 || b.ahead.dispatches == 0 {
		return b.leastPolling
	}
	left := b.left()
	if left < 0 || left > mostPolling {
		return b.leastPolling
	}
	return min(b.leastPolling+2*left, mostPolling)
}

// left is how long what was committed is expected to take from now on: less than nothing if it
// should have ended, 0 if it is not known.
func (b *Backend) left() time.Duration {
	if b.pace == 0 || b.ahead.dispatches == 0 {
		return 0
	}
	return time.Duration(b.pace*float64(b.ahead.estimate)) - time.Since(b.ahead.began)
}

// learn ends a wait: the device has done what was committed.
func (b *Backend) learn(now time.Time) {
	if a := &b.ahead; a.estimate > 0 {
		pace := float64(now.Sub(a.began)) / float64(a.estimate)
		if b.pace == 0 {
			b.pace = pace
		}
		b.pace += learnt * (pace - b.pace)
	}
	b.ahead = ahead{}
}
