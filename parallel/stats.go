package parallel

import (
	"sync"
	"time"

	"ringmaster/distributed"
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
	Overflows      uint64 // exchanges repeated in float32
}

// Since is the counts of s without those of a time before.
func (s LayerStats) Since(before LayerStats) LayerStats {
	return LayerStats{
		Compute: s.Compute - before.Compute, Waiting: s.Waiting - before.Waiting, Wire: s.Wire - before.Wire,
		Sent: s.Sent - before.Sent, Received: s.Received - before.Received,
		Exchanges: s.Exchanges - before.Exchanges, Overflows: s.Overflows - before.Overflows,
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
	m.mark, m.layer = m.now(), LayerStats{}
	if m.group != nil {
		m.seen = m.group.Stats()
	}
	m.exchanges.mark, m.exchanges.seen, m.exchanges.layer = m.mark, m.seen, 0
}

// EndLayer adds the layer that ends now to its counts.
func (m *Meter) EndLayer(layer int) {
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
