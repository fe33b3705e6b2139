package rdma

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/reduce"
)

// Describe is described at distributed.Driver.
func (d *driver) Describe() distributed.Description {
	shape := "mesh"
	if !d.rails.Topology.Mesh() {
		shape = fmt.Sprintf("ring %v", d.rails.Topology.Ring)
	}
	p := d.eng.Plan()
	notes := slices.Clone(d.rails.Notes)
	d.mu.Lock()
	if text := d.odd.text(); text != "" {
		notes = append(notes, text)
	}
	d.mu.Unlock()
	return distributed.Description{Kind: "rdma", Notes: notes,
		Topology: fmt.Sprintf("rdma %s of %d ranks, rails %s, %v, messages of up to %d KiB%s, latency %v, %.2f GB/s for each rail (%s), verbs %s",
			shape, d.link.Size, d.rails.Topology.Count(), d.rails.Type, plan.Frame<<p.Cap>>10, window(p), time.Duration(p.Model.Latency),
			float64(p.Model.Rate)/1e9, d.rails.Topology.Why, d.rails.Verbs)}
}

// window says how many messages are in flight, if they are short.
func window(p plan.Config) string {
	if !p.Inside {
		return ""
	}
	return fmt.Sprintf(" (%d in flight)", p.Slots)
}

// Cables returns the rails in use, paired.
func (d *driver) Cables() matrix.Matrix { return d.rails.Cables.Clone() }

// The sizes of the measurement.
const (
	latencyRounds = 16
	streamBytes   = 1 << 20
	streamRounds  = 4
)

// Calibrate is described at distributed.Calibrator. It measures the wires with the
// group's own operations, and all ranks adopt rank 0's results. It does not
// measure a model that is given. At the end it compares the configurations of all
// ranks, because no two ranks may plan differently.
func (d *driver) Calibrate(ctx context.Context, g *distributed.Group) error {
	m := d.eng.Plan().Model
	if d.rails.Rules.Model == (plan.Model{}) {
		var err error
		if m, err = d.measure(ctx, g); err != nil {
			return err
		}
	}
	d.formed = d.seq
	var buf [24]byte
	for i, v := range []int64{m.Latency, m.Rate, m.Memory} {
		binary.LittleEndian.PutUint64(buf[8*i:], uint64(v))
	}
	if err := d.side.Broadcast(ctx, buf[:], 0); err != nil {
		return err
	}
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(buf[8*i:])) }
	if err := d.eng.SetModel(plan.Model{Latency: at(0), Rate: at(1), Memory: at(2)}); err != nil {
		return err
	}
	digest, err := d.eng.Plan().Digest()
	if err != nil {
		return err
	}
	all := make([]byte, 8*d.link.Size)
	var own [8]byte
	binary.LittleEndian.PutUint64(own[:], digest)
	if err := d.side.AllGather(ctx, all, own[:]); err != nil {
		return err
	}
	for r := range d.link.Size {
		if binary.LittleEndian.Uint64(all[8*r:]) != digest {
			return fmt.Errorf("%w: rank %d plans operations differently from rank %d", distributed.ErrDesync, r, d.link.Rank)
		}
	}
	return nil
}

// measure times some barriers (the fastest counts) and a stream over one
// rail between rank 0 and its first neighbour.
func (d *driver) measure(ctx context.Context, g *distributed.Group) (plan.Model, error) {
	m := plan.DefaultModel()
	best, err := fastest(latencyRounds, func() error { return g.Barrier(ctx) })
	if err != nil {
		return m, err
	}
	hops := 1
	if !d.rails.Topology.Mesh() {
		hops = max(1, d.link.Size/2)
	}
	m.Latency = rough(int64(best) / int64(hops))
	peer := 1
	for peer < d.link.Size && !d.eng.Plan().Topology.Joined(0, peer) {
		peer++
	}
	other := peer
	switch d.link.Rank {
	case 0:
	case peer:
		other = 0
	default:
		return m, nil
	}
	src, dst := make([]byte, streamBytes), make([]byte, streamBytes)
	d.measuring = true
	best, err = fastest(streamRounds, func() error { return g.SendRecv(ctx, dst, other, src, other) })
	d.measuring = false
	if err != nil {
		return m, err
	}
	m.Rate = rough(streamBytes * int64(time.Second) / max(1, int64(best)))
	begun := time.Now()
	reduce.Reduce(reduce.Sum, distributed.Float16, dst, dst, src)
	m.Memory = rough(streamBytes * int64(time.Second) / max(1, int64(time.Since(begun))))
	return m, nil
}

// fastest returns the shortest time of some rounds.
func fastest(rounds int, f func() error) (time.Duration, error) {
	best := time.Duration(1 << 62)
	for range rounds {
		begun := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		best = min(best, time.Since(begun))
	}
	return best, nil
}

// rough rounds to two digits, because the measurement is no more precise.
func rough(n int64) int64 {
	step := int64(1)
	for n/step >= 100 {
		step *= 10
	}
	return max(1, n/step*step)
}
