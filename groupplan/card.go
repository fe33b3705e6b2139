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

// Card is what of a model is on a GPU with memory of its own. Sizes are in bytes.
type Card struct {
	On      decoder.OnGPU `json:"on"`
	Memory  int64         `json:"memory"`  // that the model may use
	Experts int64         `json:"experts"` // of the routed experts
	Tokens  int           `json:"tokens"`  // of the sequence that counts
	// What the GPU needs for all but the routed experts, and for the whole model, with buffers
	// and one sequence, and the weights of the former.
	Dense   int64 `json:"dense"`
	All     int64 `json:"all"`
	Weights int64 `json:"dense_weights"`
	// Program is what Go's heap takes of the host's memory. Plans count it, so what a rank
	// offers of a GPU is more by this.
	Program int64 `json:"program"`
}

// OnCard chooses what of the model is on a GPU that may use so many bytes: all of it if it
// fits, else all but the routed experts, else nothing. expertsOnCPU leaves the experts to
// the CPU in any case. A model whose choice is nothing is not refused here. The error is
// arch.Plan's.
func (o Options) OnCard(memory int64, expertsOnCPU bool) (Card, error) {
	open := o.open()
	if open.Context == 0 {
		open.Context = cardContext
		whole, err := arch.Plan(o.Model, o.open(), 1)
		if err != nil {
			return Card{}, err
		}
		open.Context = min(open.Context, whole.ContextLimit)
	}
	p, err := arch.Plan(o.Model, open, 1)
	if err != nil {
		return Card{}, usage.Wrap(err)
	}
	rest := p.Fixed() + p.PerSequence() - p.TableCache
	c := Card{Memory: memory, Experts: p.Experts, Tokens: open.Context, Weights: p.GPUWeights(decoder.DenseOnGPU)}
	p.Sequences = o.Sequences
	c.Program = own(p, 0, o.Heap).bytes()
	c.Dense, c.All = c.Weights+rest, p.GPUWeights(decoder.AllOnGPU)+rest
	switch {
	case c.Dense > memory:
		c.On = decoder.NothingOnGPU
	case expertsOnCPU || c.All > memory:
		c.On = decoder.DenseOnGPU
	default:
		c.On = decoder.AllOnGPU
	}
	return c, nil
}

// Why says what was chosen and why, with what is missing for more.
func (c Card) Why() string {
	with, lacks := fmt.Sprintf("with buffers and a sequence of %d tokens", c.Tokens), ""
	switch c.On {
	case decoder.NothingOnGPU:
		return fmt.Sprintf("even without the routed experts the model needs %s of the GPU's memory, %s; it may use %s, which lacks %s",
			units.Bytes(c.Dense), with, units.Bytes(c.Memory), units.Bytes(c.Dense-c.Memory))
	case decoder.DenseOnGPU:
		if c.All > c.Memory {
			lacks = fmt.Sprintf(", which lacks %s for that", units.Bytes(c.All-c.Memory))
		}
		return fmt.Sprintf("the CPU computes the routed experts (%s); all else needs %s of the GPU's memory, %s, and the whole model would need %s; it may use %s%s",
			units.Bytes(c.Experts), units.Bytes(c.Dense), with, units.Bytes(c.All), units.Bytes(c.Memory), lacks)
	}
	return fmt.Sprintf("the whole model needs %s of the GPU's memory, %s; it may use %s", units.Bytes(c.All), with, units.Bytes(c.Memory))
}

// GPUWeights is the bytes of the model's weights in a GPU's memory.
func (o Options) GPUWeights(at decoder.OnGPU) (int64, error) {
	p, err := arch.Plan(o.Model, o.open(), 1)
	return p.GPUWeights(at), err
}
