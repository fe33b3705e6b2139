package moe

import "time"

// LayerStats are the counts of one layer since NewForward, over all groups that
// were joined.
type LayerStats struct {
	// Compute is the time from the end of the layer before (for the first:
	// from StartStep) to the end of this one, less Waiting and Wire. On a
	// backend that runs ops at its next Flush it counts what has run by then.
	Compute time.Duration
	// Waiting is the part of the wait for the exchange before the slowest
	// rank's data began to arrive, Wire the part after.
	Waiting, Wire  time.Duration
	Sent, Received uint64 // bytes
	Exchanges      uint64 // that succeeded, repetitions not counted
	Overflows      uint64 // exchanges repeated in float32
}

// LayerStats is a copy of the counts of every layer that has run, [layers]. It may
// be called by any goroutine at any time.
func (f *Forward) LayerStats() []LayerStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]LayerStats(nil), f.stats...)
}

// count adds the layer that ends now to its counts.
func (f *Forward) count(exchanges, overflows uint64) {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.stats) <= f.layer {
		f.stats = append(f.stats, LayerStats{})
	}
	s := &f.stats[f.layer]
	compute := now.Sub(f.mark)
	if f.x != nil {
		total := f.x.group.Stats()
		d := total.Sub(f.x.seen)
		f.x.seen = total
		s.Waiting += d.Waiting
		s.Wire += d.Wire
		s.Sent += d.Sent
		s.Received += d.Received
		compute -= d.Waiting + d.Wire
	}
	s.Compute += max(compute, 0)
	s.Exchanges += exchanges
	s.Overflows += overflows
	f.mark = now
}
