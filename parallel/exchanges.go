package parallel

import (
	"fmt"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/kernels"
)

// The purposes of exchanges.
const (
	ForAttention  = "attention"
	ForExperts    = "experts"
	ForDenseFFN   = "dense FFN"
	ForRows       = "rows" // of a step divided by rows
	ForOutputHead = "output head"
)

// mostExchanges is how many kinds of exchanges a layer can have.
const mostExchanges = 5 * 4

// Check returns an error if counts are wrong for a model with that many layers. It is
// needed because another rank reports them.
func Check(layers []LayerStats, exchanges [][]Exchange, of int) error {
	if len(layers) > of {
		return fmt.Errorf("%d layers, but the model has %d", len(layers), of)
	}
	if len(exchanges) > of+1 {
		return fmt.Errorf("exchanges of %d layers, but the model has %d and the output head", len(exchanges), of)
	}
	for i, l := range layers {
		if min(l.Compute, l.Waiting, l.Wire) < 0 {
			return fmt.Errorf("layer %d: a negative time", i)
		}
	}
	for i, list := range exchanges {
		if len(list) > mostExchanges {
			return fmt.Errorf("layer %d: %d kinds of exchanges, at most %d exist", i, len(list), mostExchanges)
		}
		for _, x := range list {
			switch {
			case !slices.Contains([]string{ForAttention, ForExperts, ForDenseFFN, ForRows, ForOutputHead}, x.Purpose):
				return fmt.Errorf("layer %d: exchanges for the unknown purpose %.20q", i, x.Purpose)
			case !slices.Contains(opNames, x.Op):
				return fmt.Errorf("layer %d: exchanges by %.20q, which is not a collective", i, x.Op)
			case min(x.Compute, x.Waiting, x.Wire) < 0:
				return fmt.Errorf("layer %d: exchanges for %s with a negative time", i, x.Purpose)
			}
		}
	}
	return nil
}

// Exchange has the counts of the exchanges of one purpose and collective in one layer. In
// the list of a layer they are in the order in which they first happened.
type Exchange struct {
	Purpose string `json:"purpose"` // such as attention or experts
	Op      string `json:"op"`      // the collective
	Count   uint64 `json:"count"`
	// Compute is the time from the previous exchange, or from the start of the step, to the
	// end of this one, less Waiting and Wire. On a backend that runs ops at its next Flush
	// it counts what has run by then.
	Compute time.Duration `json:"compute"` // ns
	// Waiting is the part of the waits for these exchanges before the slowest rank's
	// data began to arrive, Wire the part after.
	Waiting time.Duration `json:"waiting"` // ns
	Wire    time.Duration `json:"wire"`    // ns
	Sent    uint64        `json:"sent"`    // bytes, headers included
}

// Add adds the counts of other.
func (x *Exchange) Add(other Exchange) {
	x.Count += other.Count
	x.Compute += other.Compute
	x.Waiting += other.Waiting
	x.Wire += other.Wire
	x.Sent += other.Sent
}

// Sub takes the counts of earlier from x.
func (x *Exchange) Sub(earlier Exchange) {
	x.Count -= earlier.Count
	x.Compute -= earlier.Compute
	x.Waiting -= earlier.Waiting
	x.Wire -= earlier.Wire
	x.Sent -= earlier.Sent
}

// Find returns the counts of a purpose and collective in the list of a layer, nil if the
// list has none.
func Find(list []Exchange, purpose, op string) *Exchange {
	for i := range list {
		if list[i].Purpose == purpose && list[i].Op == op {
			return &list[i]
		}
	}
	return nil
}

// OfAllLayers returns the sum of the lists of all layers [layers+1], in the order in which
// each purpose and collective first occurs.
func OfAllLayers(layers [][]Exchange) []Exchange {
	var sum []Exchange
	for _, list := range layers {
		for _, x := range list {
			if was := Find(sum, x.Purpose, x.Op); was != nil {
				was.Add(x)
			} else {
				sum = append(sum, x)
			}
		}
	}
	return sum
}

// Counter counts the exchanges of one purpose with a Meter.
type Counter struct {
	*Meter
	purpose string
}

// For returns a counter of exchanges of a purpose, such as attention. Counters of the same
// purpose count together.
func (m *Meter) For(purpose string) Counter { return Counter{m, purpose} }

// exchangeClock is what a Meter knows about the exchanges of each layer.
type exchangeClock struct {
	mark  time.Time         // end of the previous exchange
	seen  distributed.Stats // of the group, then
	layer int               // to which an exchange now belongs
	// counts are those of each layer [layers+1]; behind the last layer are those of the
	// output head. The mutex of the Meter guards it.
	counts [][]Exchange
}

// await is kernels.Await of an exchange.
func (c Counter) await(b kernels.Backend, wait func() (changed bool, err error), use func()) error {
	waited := false
	err := kernels.Await(b, func() (bool, error) {
		waited = true
		return wait()
	}, use)
	c.late = err == nil && !waited
	return err
}

// exchanged counts an exchange that succeeded.
func (c Counter) exchanged(op Op, repeated bool) {
	m := c.Meter
	if m.late {
		m.late = false
		defer func() {
			if m.ends > 0 {
				m.EndLayer(m.ends - 1)
				m.ends = 0
			}
		}()
	}
	m.layer.Exchanges++
	if repeated {
		m.layer.Overflows++
	}
	now, x := m.now(), &m.exchanges
	add := Exchange{Purpose: c.purpose, Op: op.String(), Count: 1, Compute: now.Sub(x.mark)}
	if m.group != nil {
		total := m.group.Stats()
		d := total.Sub(x.seen)
		x.seen = total
		add.Waiting, add.Wire, add.Sent = d.Waiting, d.Wire, d.Sent
		add.Compute -= d.Waiting + d.Wire
	}
	add.Compute = max(add.Compute, 0)
	x.mark = now
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(x.counts) <= x.layer {
		x.counts = append(x.counts, nil)
	}
	list := &x.counts[x.layer]
	if before := Find(*list, add.Purpose, add.Op); before != nil {
		before.Add(add)
		return
	}
	*list = append(*list, add)
}

// Exchanges returns a copy of the counts of the exchanges of every layer, [layers+1]; those
// behind the last layer belong to the output head. It is shorter if the last layers have no
// exchange. Any goroutine may call it at any time.
func (m *Meter) Exchanges() [][]Exchange {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([][]Exchange, len(m.exchanges.counts))
	for i, list := range m.exchanges.counts {
		out[i] = append([]Exchange(nil), list...)
	}
	return out
}
