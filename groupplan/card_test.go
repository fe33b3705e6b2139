package groupplan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/host"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
)

// TestOnCard: a GPU gets the whole model if it has room for it, else all but the routed
// experts, else nothing; the text has the sizes.
func TestOnCard(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	o := Options{Model: f, Sequences: 4, MaxTokens: 64, Context: 512}
	p, err := arch.Plan(f, o.open(), 1)
	require.NoError(t, err)
	require.NotZero(t, p.Experts)
	rest := p.Fixed() + p.PerSequence()
	dense := p.Dense + rest
	for _, c := range []struct {
		memory       int64
		expertsOnCPU bool
		want         decoder.OnGPU
		says         string
	}{
		{dense + p.Experts, false, decoder.AllOnGPU, "the whole model"},
		{dense + p.Experts, true, decoder.DenseOnGPU, "the CPU computes"},
		{dense + p.Experts - 1, false, decoder.DenseOnGPU, "with buffers and a sequence of 512 tokens"},
		{dense, false, decoder.DenseOnGPU, "the CPU computes"},
		{dense + p.Experts - 1000, false, decoder.DenseOnGPU, ", which lacks 1000 B for that"},
		{dense - 1, false, decoder.NothingOnGPU, "even without the routed experts"},
		{dense - 1000, false, decoder.NothingOnGPU, ", which lacks 1000 B"},
		{0, true, decoder.NothingOnGPU, "it may use 0 B"},
	} {
		card, err := o.OnCard(c.memory, c.expertsOnCPU)
		require.NoError(t, err)
		require.Equal(t, c.want, card.On, c)
		require.Contains(t, card.Why(), c.says)
		require.Equal(t, []int64{c.memory, dense, dense + p.Experts, p.Dense}, []int64{card.Memory, card.Dense, card.All, card.Weights})
	}
	// A GPU that just holds the model is enough for the plan, which counts the program too.
	o.Heap = LeastHeap
	card, err := o.OnCard(dense+p.Experts, false)
	require.NoError(t, err)
	require.Greater(t, card.Program, int64(LeastHeap))
	offer := card.Memory + card.Program
	_, _, err = o.Alone(Room{Memory: host.Memory{Total: offer, Available: offer}, Known: true, OnGPU: card.On, GPU: card.Memory})
	require.NoError(t, err)
	_, err = o.Plan([]cluster.Hello{{Size: 1, Memory: offer}}, 0)
	require.NoError(t, err)
	_, err = o.Plan([]cluster.Hello{{Size: 1, Memory: 1 << 40, OwnMemory: card.Memory - p.Experts - card.Weights + card.Program}}, 0)
	require.NoError(t, err, "with the routed experts on the CPU")
	o.Context = 0 // of a sequence of cardContext tokens, or what the file allows
	card, err = o.OnCard(dense, false)
	require.NoError(t, err)
	require.Equal(t, decoder.NothingOnGPU, card.On, card.Why())
}

// TestPlanOnGPU: the table has a column of the GPU's memory, which bounds the context and
// the KV caches.
func TestPlanOnGPU(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	o := Options{Model: f, Sequences: 4, MaxTokens: 64, Context: 512}
	p, err := arch.Plan(f, o.open(), 4)
	require.NoError(t, err)
	room := Room{Memory: host.Memory{Total: 1 << 40, Available: 1 << 40}, Known: true, OnGPU: decoder.DenseOnGPU}
	room.GPU = p.Dense + p.Fixed() + 2*p.PerSequence()
	plan, text, err := o.Alone(room)
	require.NoError(t, err)
	require.Equal(t, 2*p.PerSequence(), plan.Budget)
	require.Equal(t, room.GPU, plan.GPUBytes())
	require.Regexp(t, `all +on the GPU`, text)
	require.Regexp(t, `routed experts +\S+ \S+ +- `, text)
	require.Regexp(t, `other weights +(\S+ \S+) +\S+ \S+ +mapped`, text)

	room.GPU = p.Dense + p.Fixed() + p.PerSequence() - 1
	_, _, err = o.Alone(room)
	require.ErrorContains(t, err, "of the GPU's memory with one sequence of 512 tokens")

	room.OnGPU, room.GPU = decoder.AllOnGPU, p.Weights()+p.Fixed()+p.PerSequence()
	plan, text, err = o.Alone(room)
	require.NoError(t, err)
	require.Equal(t, p.PerSequence(), plan.Budget)
	require.Regexp(t, `routed experts +(\S+ \S+) +\S+ \S+ +mapped`, text)

	_, text, err = o.Alone(Room{})
	require.NoError(t, err)
	require.NotContains(t, text, "on the GPU")
}
