package groupplan

import (
	"fmt"
	"strings"

	"ringmaster/internal/host"
	"ringmaster/internal/units"
	"ringmaster/model/decoder"
)

// Room is the host of a model that runs alone.
type Room struct {
	Memory  host.Memory
	Known   bool  // Memory is known
	Limit   int64 // bytes that the process may use beside the mapped weights, 0 for what is free
	Threads int   // of the CPU kernels, 0 on a GPU

	// Of a GPU with memory of its own, or without the routed experts:
	OnGPU decoder.OnGPU
	GPU   int64 // bytes that the model may use of its memory
}

// onGPU is what a plan needs of the GPU's memory beside the KV caches.
func (r Room) onGPU(p decoder.Plan) int64 { return p.GPUWeights(r.OnGPU) + p.Fixed() - p.TableCache }

// limit is the most memory that the process may use beside the mapped weights, 0 if nothing
// limits it: what was given, or what is free as long as the weights stay in memory too.
func (o Options) limit(r Room, p decoder.Plan) int64 {
	switch {
	case r.Limit > 0:
		return r.Limit
	case !r.Known || o.Overcommit:
		return 0
	}
	return min(r.Memory.Available, r.Memory.Total-p.Weights())
}

// Alone plans the memory of a host that has the whole model. The text explains the plan to
// people, whether it fits or not. A model that does not fit is refused.
func (o Options) Alone(r Room) (plan decoder.Plan, text string, err error) {
	type planned struct {
		decoder.Plan
		text string
	}
	p, long, err := settleSteps(o, r.Threads == 0, func(o Options) (planned, error) {
		plan, text, err := o.aloneOrSpared(r)
		return planned{plan, text}, err
	}, func(p planned) held {
		return holding(p.Context, p.Budget, p.PerSequence(), p.DraftWeights > 0, false)
	})
	if long {
		p.text += saysLong()
	}
	return p.Plan, p.text, err
}

// aloneOrSpared is Alone for steps of the options, without a block that has no room.
func (o Options) aloneOrSpared(r Room) (plan decoder.Plan, text string, err error) {
	plan, text, err = o.alone(r)
	spared, may := o.spare()
	if !may || err == nil && plan.Context == plan.ContextLimit {
		return plan, text, err
	}
	without, says, failed := spared.alone(r)
	if failed != nil || err == nil && without.Context == plan.Context {
		return plan, text, err
	}
	return without, says + noBlock(noRoom), nil
}

// noRoom is why a plan has no block.
const noRoom = "it has no room beside the model and its context"

// alone is Alone with the block of the options, or without one.
func (o Options) alone(r Room) (plan decoder.Plan, text string, err error) {
	rest := func(p decoder.Plan) int64 { return p.Fixed() + own(p, r.Threads, o.Heap).bytes() }
	need := func(p decoder.Plan) int64 { return rest(p) + p.PerSequence() }
	bound := r.Known && !o.Overcommit // by the memory of the host
	fits := func(p decoder.Plan) bool {
		if r.Limit > 0 && need(p) > r.Limit {
			return false
		}
		if r.OnGPU != decoder.NothingOnGPU && r.onGPU(p)+p.PerSequence() > r.GPU {
			return false
		}
		return !bound || need(p) <= r.Memory.Available && p.Weights()+need(p) <= r.Memory.Total
	}
	if plan, err = o.fitContext(fits); err != nil {
		return plan, "", err
	}
	m := own(plan, r.Threads, o.Heap)
	plan.Kernels, plan.Heap, plan.Budget = m.kernels, m.heap, sequenceBudget(o.limit(r, plan), rest(plan), plan)
	if plan.OnGPU = r.OnGPU; r.OnGPU != decoder.NothingOnGPU {
		plan.Budget = min(plan.Budget, sequenceBudget(r.GPU, r.onGPU(plan), plan))
	}
	var w strings.Builder
	if err := plan.Write(&w); err != nil {
		return plan, "", err
	}
	if o.Context == 0 && plan.Context < plan.ContextLimit {
		fmt.Fprintf(&w, "context limited to %d tokens of the file's %d by the memory\n", plan.Context, plan.ContextLimit)
	}
	return plan, w.String(), o.refuseAlone(r, plan, need(plan), bound)
}

// refuseAlone is why a plan does not fit, nil if it does. need is what it needs beside the
// weights.
func (o Options) refuseAlone(r Room, plan decoder.Plan, need int64, bound bool) error {
	path := o.Model.Path()
	switch {
	case r.OnGPU != decoder.NothingOnGPU && r.onGPU(plan)+plan.PerSequence() > r.GPU:
		return fmt.Errorf("%s needs %s of the GPU's memory with one sequence of %d tokens; it may use %s. Use a smaller --ctx or --max-batch, or --backend cpu",
			path, units.Bytes(r.onGPU(plan)+plan.PerSequence()), plan.Context, units.Bytes(r.GPU))
	case r.Limit > 0 && need > r.Limit:
		return fmt.Errorf("%s needs %s for buffers and one sequence of %d tokens; --memory allows %s. Raise it, or use a smaller --ctx, --max-batch or --max-body",
			path, units.Bytes(need), plan.Context, units.Bytes(r.Limit))
	case bound && r.Limit > r.Memory.Available:
		return fmt.Errorf("--memory allows %s, but %s is free; lower it, or use --memory unlimited",
			units.Bytes(r.Limit), units.Bytes(r.Memory.Available))
	case bound && need > r.Memory.Available:
		return fmt.Errorf("%s needs %s for buffers and one sequence of %d tokens; %s of memory is free. Use a smaller --ctx or --max-batch, or --memory unlimited to start anyway",
			path, units.Bytes(need), plan.Context, units.Bytes(r.Memory.Available))
	case bound && plan.Weights()+need > r.Memory.Total:
		return fmt.Errorf("%s has %s of weights and needs %s in addition; this host has %s, so every token would read from disk. Share the experts among more hosts, or use --memory unlimited to run anyway",
			path, units.Bytes(plan.Weights()), units.Bytes(need), units.Bytes(r.Memory.Total))
	}
	return nil
}
