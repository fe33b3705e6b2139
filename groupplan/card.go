package groupplan

import (
	"fmt"

	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
)

// cardContext is how many tokens a sequence has for which a GPU must have room, beside
// what a choice puts there, unless the options say how many. More routed experts on the
// GPU are worth less than room for a conversation.
const cardContext = 8192

// OnCard chooses what of the model is on a GPU that may use so many bytes: all of it if it
// fits, else all but the routed experts, else nothing. expertsOnCPU leaves the experts to
// the CPU in any case. The text says what was chosen and why. A model whose choice is
// nothing is not refused here. The error is arch.Plan's.
func (o Options) OnCard(memory int64, expertsOnCPU bool) (at decoder.OnGPU, text string, err error) {
	open := o.open()
	if open.Context == 0 {
		open.Context = cardContext
		whole, err := arch.Plan(o.Model, o.open(), 1)
		if err != nil {
			return at, "", err
		}
		open.Context = min(open.Context, whole.ContextLimit)
	}
	p, err := arch.Plan(o.Model, open, 1)
	if err != nil {
		return at, "", usage.Wrap(err)
	}
	rest := p.Fixed() + p.PerSequence() - p.TableCache
	dense, all := p.GPUWeights(decoder.DenseOnGPU)+rest, p.GPUWeights(decoder.AllOnGPU)+rest
	with := fmt.Sprintf("with buffers and a sequence of %d tokens", open.Context)
	switch {
	case dense > memory:
		return decoder.NothingOnGPU, fmt.Sprintf("even without the routed experts the model needs %s of the GPU's memory, %s; it may use %s", units.Bytes(dense), with, units.Bytes(memory)), nil
	case expertsOnCPU || all > memory:
		return decoder.DenseOnGPU, fmt.Sprintf("the CPU computes the routed experts (%s); all else needs %s of the GPU's memory, %s, and the whole model would need %s; it may use %s",
			units.Bytes(p.Experts), units.Bytes(dense), with, units.Bytes(all), units.Bytes(memory)), nil
	}
	return decoder.AllOnGPU, fmt.Sprintf("the whole model needs %s of the GPU's memory, %s; it may use %s", units.Bytes(all), with, units.Bytes(memory)), nil
}

// GPUWeights is the bytes of the model's weights in a GPU's memory.
func (o Options) GPUWeights(at decoder.OnGPU) (int64, error) {
	p, err := arch.Plan(o.Model, o.open(), 1)
	return p.GPUWeights(at), err
}
