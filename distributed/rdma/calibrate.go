package rdma

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/engine"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/reduce"
)

// Measured is the interface of this package's groups besides distributed.Group.
type Measured interface {
	// Model is what the wires were measured to do.
	Model() plan.Model
	// Topology is one line for people: how the ranks are joined.
	Topology() string
	// Cables are the rails in use, paired.
	Cables() matrix.Matrix
	// Notes say what was put right and what was left out.
	Notes() []string
}

var _ Measured = (*group)(nil)

func (g *group) Model() plan.Model     { return g.eng.Plan().Model }
func (g *group) Cables() matrix.Matrix { return g.rails.Cables.Clone() }
func (g *group) Notes() []string       { return append([]string(nil), g.rails.Notes...) }

func (g *group) Topology() string {
	shape := "mesh"
	if !g.rails.Topology.Mesh() {
		shape = fmt.Sprintf("ring %v", g.rails.Topology.Ring)
	}
	p := g.eng.Plan()
	m := p.Model
	return fmt.Sprintf("rdma %s of %d ranks, rails %d, %v, messages of up to %d KiB, latency %v, %.2f GB/s for each rail (%s)",
		shape, g.size, p.Topology.Rails, g.rails.Type, plan.Frame<<p.Cap>>10, time.Duration(m.Latency), float64(m.Rate)/1e9, g.rails.Topology.Why)
}

// The sizes of the measurement.
const (
	latencyRounds = 16
	streamBytes   = 1 << 20
	streamRounds  = 4
)

// calibrate measures the wires with the group's own operations and takes over
// what rank 0 has found. A model that is given is not measured. At the end the
// configurations of all ranks are compared: no two may plan differently.
func (g *group) calibrate(ctx context.Context, given plan.Model) error {
	m := given
	if m == (plan.Model{}) {
		var err error
		if m, err = g.measure(ctx); err != nil {
			return err
		}
	}
	var buf [24]byte
	for i, v := range []int64{m.Latency, m.Rate, m.Memory} {
		binary.LittleEndian.PutUint64(buf[8*i:], uint64(v))
	}
	if err := g.side.Broadcast(ctx, buf[:], 0); err != nil {
		return err
	}
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(buf[8*i:])) }
	if err := g.eng.SetModel(plan.Model{Latency: at(0), Rate: at(1), Memory: at(2)}); err != nil {
		return err
	}
	digest, err := g.eng.Plan().Digest()
	if err != nil {
		return err
	}
	all := make([]byte, 8*g.size)
	var own [8]byte
	binary.LittleEndian.PutUint64(own[:], digest)
	if err := g.side.AllGather(ctx, all, own[:]); err != nil {
		return err
	}
	for r := range g.size {
		if binary.LittleEndian.Uint64(all[8*r:]) != digest {
			return fmt.Errorf("%w: %w: rank %d plans operations differently from rank %d", distributed.ErrBootstrap, distributed.ErrDesync, r, g.rank)
		}
	}
	g.ops.Store(0)
	g.sent.Store(0)
	g.received.Store(0)
	g.waiting.Store(0)
	g.wire.Store(0)
	g.number = 0
	return nil
}

// measure: the best of some barriers, and a stream over one rail between rank 0
// and the first that it is joined to.
func (g *group) measure(ctx context.Context) (plan.Model, error) {
	m := plan.DefaultModel()
	best := time.Duration(1 << 62)
	for range latencyRounds {
		begun := time.Now()
		if err := g.Barrier(ctx); err != nil {
			return m, err
		}
		best = min(best, time.Since(begun))
	}
	hops := 1
	if !g.rails.Topology.Mesh() {
		hops = max(1, g.size/2)
	}
	m.Latency = rough(int64(best) / int64(hops))
	peer := 1
	for peer < g.size && !g.eng.Plan().Topology.Joined(0, peer) {
		peer++
	}
	if g.rank == 0 || g.rank == peer {
		other := peer
		if g.rank == peer {
			other = 0
		}
		src, dst := make([]byte, streamBytes), make([]byte, streamBytes)
		best = time.Duration(1 << 62)
		for range streamRounds {
			if err := g.begin(ctx, "measure", nil); err != nil {
				return m, err
			}
			k := engine.Operation{Op: engine.Message, DType: engine.NoDType, Bytes: streamBytes, Received: streamBytes, To: other, From: other, Rails: 1}
			begun := time.Now()
			if err := g.start(k, nil, src, dst, false); err != nil {
				return m, err
			}
			if err := g.finish(); err != nil {
				return m, err
			}
			best = min(best, time.Since(begun))
		}
		m.Rate = rough(streamBytes * int64(time.Second) / max(1, int64(best)))
		begun := time.Now()
		reduce.Reduce(reduce.Sum, distributed.Float16, dst, dst, src)
		m.Memory = rough(streamBytes * int64(time.Second) / max(1, int64(time.Since(begun))))
	}
	return m, nil
}

// rough rounds to two digits: the measurement is no more precise.
func rough(n int64) int64 {
	step := int64(1)
	for n/step >= 100 {
		step *= 10
	}
	return max(1, n/step*step)
}
