package calibrate

import (
	"errors"

	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/hybrid"
	"ringmaster/kernels/record"
	"ringmaster/model/decoder"
	"ringmaster/parallel/cost"
)

// NewTracerBesideGPU is NewTracer of ranks with routed experts on the CPU beside a GPU.
// The backend of two itself decides which ops are the CPU's, when the CPU waits for the GPU, and
// which ops of the GPU run meanwhile.
func NewTracerBesideGPU(open func(b kernels.Backend) (decoder.Decoder, error)) (*Tracer, error) {
	gpu, err := cpu.New(1) // stands for a GPU, because it runs nothing
	if err != nil {
		return nil, err
	}
	host, err := cpu.New(1)
	if err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	card, experts := &card{Backend: record.Wrap(gpu)}, record.Wrap(host)
	return newTracer(&beside{hybrid.New(card, experts), card, experts}, open)
}

// beside is a GPU with memory of its own, and the CPU, which runs the routed experts.
type beside struct {
	*hybrid.Backend
	card    *card
	experts *record.Backend
}

// ValuesMatter is false, because no weight is computed with.
func (beside) ValuesMatter() bool { return false }

func (b *beside) note(trace *cost.Trace) {
	b.card.trace = trace
	if trace == nil {
		b.card.Show(nil, false)
		b.experts.Show(nil, false)
		return
	}
	b.card.Show(func(op cost.Op, _ func()) { *trace = append(*trace, cost.Event{Op: &op}) }, false)
	b.experts.Show(func(op cost.Op, _ func()) {
		op.OnCPU = true
		*trace = append(*trace, cost.Event{Op: &op})
	}, false)
}

// card is a GPU's part of a trace. The host reads its memory slowly.
type card struct {
	*record.Backend
	trace *cost.Trace
}

func (*card) Host() kernels.Host { return kernels.Host{SlowReads: true} }

// Packer is nil, as a GPU's.
func (*card) Packer() kernels.Packer { return nil }

// Flush notes that the CPU waits.
func (c *card) Flush() error {
	if c.trace != nil {
		*c.trace = append(*c.trace, cost.Event{Reach: true})
	}
	return c.Backend.Flush()
}

// Reach is Flush.
func (c *card) Reach() error { return c.Flush() }
