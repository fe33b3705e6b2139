package decodertest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/kernels/hybrid"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// card is a backend whose memory the host reads slowly, and a lazy one, in place of a GPU.
type card struct{ *deferred.Backend }

func (card) Host() kernels.Host { return kernels.Host{SlowReads: true} }

// openHybrid loads a model on a hybrid of two CPU backends. The one in place of the GPU runs
// nothing before Flush.
func (a Architecture) openHybrid(t testing.TB, f *gguf.File, o decoder.OpenOptions) (*hybrid.Backend, decoder.Decoder) {
	gpu, err := cpu.New(1)
	require.NoError(t, err)
	experts, err := cpu.New(1)
	require.NoError(t, err)
	b := hybrid.New(card{deferred.Wrap(gpu)}, experts)
	return b, a.openWith(t, f, b, o)
}

// tokensOf are the tokens that the steps give to a sequence that is no fork.
func tokensOf(steps []model.Step, seq model.SeqID) (tokens []int32) {
	for _, s := range steps {
		for _, e := range s.Entries {
			if e.Seq == seq {
				tokens = append(tokens, e.Tokens...)
			}
		}
	}
	return tokens
}

func snapshotOf(t testing.TB, m decoder.Decoder, seq model.SeqID, tokens []int32) []byte {
	var out bytes.Buffer
	require.NoError(t, m.Snapshot(&out, seq, tokens))
	return out.Bytes()
}

// ExpertsOnTheHost checks that a hybrid has the bits of its backends, alone and in a group,
// also in snapshots, and that the host waits for the GPU at most once in a layer alone and twice in a group.
func (a Architecture) ExpertsOnTheHost(t *testing.T) {
	c, f, steps := a.small(t, 31)
	layers := uint64(c.Layers * len(steps))
	for _, o := range []decoder.OpenOptions{
		{MaxTokens: 48}, {MaxTokens: 48, Reduce: parallel.Exact},
	} {
		plainModel := a.OpenOn(t, f, false, o)
		want, _, err := Play(plainModel, steps)
		require.NoError(t, err)
		b, m := a.openHybrid(t, f, o)
		got, _, err := Play(m, steps)
		require.NoError(t, err)
		RequireSame(t, want, got, fmt.Sprint("alone ", o.Reduce))
		require.NotZero(t, b.Waits())
		require.LessOrEqual(t, b.Waits(), layers)
		tokens := tokensOf(steps, 1)
		require.Equal(t, snapshotOf(t, plainModel, 1, tokens), snapshotOf(t, m, 1, tokens))

		const size = 2
		plain, all := a.OpenAll(t, f, size, false, o), make(Members, size)
		backends := make([]*hybrid.Backend, size)
		for i := range all {
			backends[i], all[i] = a.openHybrid(t, f, o)
		}
		shares := []float64{2, 1}
		plain.Join(t, parallel.ShareAll, shares)
		all.Join(t, parallel.ShareAll, shares)
		before := backends[0].Waits()
		RequireSame(t, plain.Play(t, steps), all.Play(t, steps), fmt.Sprint("in a group ", o.Reduce))
		require.LessOrEqual(t, backends[0].Waits()-before, 2*layers)
	}
}
