package parallel

import (
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/parallel/assign"
)

// LayerStats has the counts of one layer since its Meter was made, over all groups that it
// joined.
type LayerStats struct {
	// Compute is the time from the end of the previous layer (for the first: from
	// StartStep) to the end of this one, less Waiting and Wire. On a backend that runs ops
	// at its next Flush it counts what has run by then.
	Compute time.Duration
	// Waiting is the part of the waits for exchanges before the slowest
	// rank's data began to arrive, Wire the part after.
	Waiting, Wire  time.Duration
	Sent, Received uint64 // bytes
	Exchanges      uint64 // that succeeded, repetitions not counted
	Overflows      uint64 // exchanges repeated in float32; with Exact those in which a block needed more than one lane
	Routed         Routed
}

// Routed counts what a layer computed of its routed experts in a group. A row counts once
// for each of its experts, and an expert that a rank reads in a step counts its bytes once.
type Routed struct {
	Rows, Bytes               uint64 // of this rank
	BusiestRows, BusiestBytes uint64 // of the rank with most in each step
	AllRows, AllBytes         uint64 // of all ranks
}

// Since is the counts of r without those of a time before.
func (r Routed) Since(before Routed) Routed {
	return Routed{r.Rows - before.Rows, r.Bytes - before.Bytes, r.BusiestRows - before.BusiestRows, r.BusiestBytes - before.BusiestBytes,
		r.AllRows - before.AllRows, r.AllBytes - before.AllBytes}
}

// Add adds the counts of other.
func (r *Routed) Add(other Routed) {
	r.Rows += other.Rows
	r.Bytes += other.Bytes
	r.BusiestRows += other.BusiestRows
	r.BusiestBytes += other.BusiestBytes
	r.AllRows += other.AllRows
	r.AllBytes += other.AllBytes
}

// Imbalance is assign.Imbalance by rows and by bytes.
func (r Routed) Imbalance(ranks int) (rows, bytes float64) {
	return assign.Imbalance(int64(r.BusiestRows), int64(r.AllRows), ranks), assign.Imbalance(int64(r.BusiestBytes), int64(r.AllBytes), ranks)
}

// Since is the counts of s without those of a time before.
func (s LayerStats) Since(before LayerStats) LayerStats {
	return LayerStats{
		Compute: s.Compute - before.Compute, Waiting: s.Waiting - before.Waiting, Wire: s.Wire - before.Wire,
		Sent: s.Sent - before.Sent, Received: s.Received - before.Received,
		Exchanges: s.Exchanges - before.Exchanges, Overflows: s.Overflows - before.Overflows, Routed: s.Routed.Since(before.Routed),
	}
}

// Add adds the counts of other.
func (s *LayerStats) Add(other LayerStats) {
	s.Compute += other.Compute
	s.Waiting += other.Waiting
	s.Wire += other.Wire
	s.Sent += other.Sent
	s.Received += other.Received
	s.Exchanges += other.Exchanges
	s.Overflows += other.Overflows
	s.Routed.Add(other.Routed)
}

// Meter counts the time and the exchanges of each layer: whatever exchanges rows for a
// model has its meter. The goroutine that runs the steps uses it; others may call only
// Stats and Exchanges.
type Meter struct {
	now   func() time.Time
	mark  time.Time // end of the previous layer
	group *distributed.Group
	seen  distributed.Stats // of group, when the last layer ended
	layer LayerStats        // exchanges of the current layer; other fields are zero
	late  bool              // an exchange of the layer has not been waited for: see kernels.Await
	ends  int               // the layer that ends with it, counted from 1, or 0

	exchanges exchangeClock

	mu    sync.Mutex // guards stats and exchanges.counts
	stats []LayerStats
}

// NewMeter makes a meter with a clock, nil for the system's.
func NewMeter(now func() time.Time) *Meter {
	if now == nil {
		now = time.Now
	}
	return &Meter{now: now}
}

// Join makes the meter count the exchanges of g, nil for none. It must not be called during
// a step.
func (m *Meter) Join(g *distributed.Group) {
	m.group, m.seen = g, distributed.Stats{}
	if g != nil {
		m.seen = g.Stats()
	}
}

// StartStep resets the clock of the first layer.
func (m *Meter) StartStep() {
	m.mark, m.layer, m.late, m.ends = m.now(), LayerStats{}, false, 0
	if m.group != nil {
		m.seen = m.group.Stats()
	}
	m.exchanges.mark, m.exchanges.seen, m.exchanges.layer = m.mark, m.seen, 0
}

// CountRouted counts the loads [ranks] of the routed experts of the current layer, each
// expert of so many bytes.
func (m *Meter) CountRouted(loads []assign.Load, rank int, expertBytes int) {
	r := &m.layer.Routed
	rows, experts := 0, 0
	for _, l := range loads {
		rows, experts = max(rows, l.Slots), max(experts, l.Experts)
		r.AllRows += uint64(l.Slots)
		r.AllBytes += uint64(l.Experts * expertBytes)
	}
	r.Rows += uint64(loads[rank].Slots)
	r.Bytes += uint64(loads[rank].Experts * expertBytes)
	r.BusiestRows += uint64(rows)
	r.BusiestBytes += uint64(experts * expertBytes)
}

// EndLayer adds the layer that ends now to its counts. If the wait for its last exchange is
// late, it ends with that.
func (m *Meter) EndLayer(layer int) {
	if m.late {
		m.ends = layer + 1
		return
	}
	now := m.now()
	add := m.layer
	add.Compute = now.Sub(m.mark)
	if m.group != nil {
		total := m.group.Stats()
		d := total.Sub(m.seen)
		m.seen = total
		add.Waiting, add.Wire, add.Sent, add.Received = d.Waiting, d.Wire, d.Sent, d.Received
		add.Compute -= d.Waiting + d.Wire
	}
	add.Compute = max(add.Compute, 0)
	m.mark, m.layer, m.exchanges.layer = now, LayerStats{}, layer+1
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.stats) <= layer {
		m.stats = append(m.stats, LayerStats{})
	}
	m.stats[layer].Add(add)
}

// Stats returns a copy of the counts of every layer that has ended, [layers]. Any goroutine
// may call it at any time.
func (m *Meter) Stats() []LayerStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]LayerStats(nil), m.stats...)
}
