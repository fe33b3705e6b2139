package replica

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// TestHelperOfDecoders: forks, rewinds and checkpoints of real models with a helper, which is
// lost, replaced and away while epochs end before, within and after steps, give the bits of one
// rank that runs every sequence as a whole.
func TestHelperOfDecoders(t *testing.T) {
	for i, preset := range []string{"tiny", "ds2-tiny"} {
		if i > 0 && !testenv.Rest(t, testenv.Full, "deepseek2") {
			return
		}
		t.Run(preset, func(t *testing.T) {
			shape := decodertest.Preset(t, preset)
			shape.Layers, shape.Embd, shape.Heads, shape.QRank, shape.FF, shape.Types = 4, 64, 4, 32, 32, decodertest.SmallTypes
			if preset == "tiny" {
				c := &shape
				c.HeadDim, c.RotDim, c.ORank, c.OGroups, c.Window, c.IndexHeads, c.IndexDim, c.TopK = 64, 32, 32, 2, 24, 4, 32, 8
			}
			synctest.Test(t, func(t *testing.T) { outliveHelper(t, shape) })
		})
	}
}

// outliveHelper is the test of one model.
func outliveHelper(t *testing.T, shape synthetic.Config) {
	models := &realModels{t: t, file: decodertest.InMemory(t, shape), help: &parallel.Help{Rows: 12, Missing: 1 << 40}, layers: shape.Layers}
	plain := models.open(2048)
	c, l := newClusterOf(t, 2, models)
	defer func() {
		if t.Failed() { // so that the failure is what is seen
			c.recovering = false
			c.stop(l)
		}
	}()
	f := newLife(t, l, 3)
	f.plain, f.rarely, f.mortal, f.checks = plain, 3, 8, 3
	chunk := func() { // of a prompt
		id := f.ids()[0]
		s := model.Step{Entries: []model.Entry{f.grow(id, 0, 10+f.random.IntN(40))}}
		s.Entries[0].Want = model.WantNone
		_, err := l.Forward(t.Context(), s)
		require.NoError(t, err)
		l.Commit(s)
	}
	f.between = c.reforms
	c.disturbTimes(2, 8)
	for range 50 {
		f.step(4, 15)
		chunk()
	}
	synctest.Wait()
	require.Greater(t, c.epoch.Number, uint32(7))
	require.Greater(t, c.helped(), 30)
	require.NotZero(t, c.workers[1].resident.snapshot().Tokens)
	c.hooks[0].Store(nil)
	c.hooks[1].Store(nil)
	// Rank 0 continues alone, and a helper joins without sequences.
	f.between = nil
	chunk()
	c.enters(0)
	f.step(4, 15)
	before := c.helped()
	c.enters(0, 1)
	require.False(t, anySequence(c.real[1], f.last))
	for range 10 {
		f.step(4, 15)
		chunk()
	}
	require.Greater(t, c.helped(), before+9)
	// Without a next step rank 0 takes the state of the last one all the same.
	chunk()
	synctest.Wait()
	settled, given := c.progress()
	require.Less(t, settled, given, "the helper waits to send the state")
	<-time.After(2 * settleAfter)
	synctest.Wait()
	settled, given = c.progress()
	require.Equal(t, given, settled)
	// A sequence that the helper lacks is copied from rank 0 and returns.
	id := f.ids()[0]
	tokens := f.live[id].tokens
	x, in := l.Export(id, tokens, 0), l.Import(f.last+1)
	for {
		b, err := x.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		_, err = in.Write(b)
		require.NoError(t, err)
	}
	got, err := in.Close()
	require.NoError(t, err)
	require.Equal(t, tokens, got)
	f.last++
	f.live[f.last] = &living{tokens, f.live[id].peak, f.live[id].at}
	for range 5 {
		f.step(5, 15)
	}
	synctest.Wait()
	for id, q := range f.live {
		require.Equal(t, len(q.tokens), l.Len(id))
		require.Equal(t, q.at, c.real[0].Checkpoints(id))
	}
	c.recovering = false
	c.stop(l)
	require.NoError(t, plain.Close())
}

// progress is how many steps of the epoch all ranks have ended, and how many have begun.
func (c *fakeCluster) progress() (settled, given uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settled, c.given
}

// helped is how many steps that were sent go through the helper.
func (c *fakeCluster) helped() (n int) {
	for _, b := range c.sent {
		if b[0] == helpFormat {
			n++
		}
	}
	return n
}

func anySequence(r *realRank, last model.SeqID) bool {
	for id := range last + 1 {
		if r.Len(id) > 0 {
			return true
		}
	}
	return false
}

// TestHelpBytes: what the helper has of each sequence follows the entries.
func TestHelpBytes(t *testing.T) {
	w := work{number: 3, step: model.Step{
		Entries: []model.Entry{{Seq: 1, Pos: 9, Tokens: []int32{5}}, {Seq: 2, Tokens: []int32{6}}}, Help: []int{7, model.Unhelped}}}
	b := roundTrip(t, w)
	require.Equal(t, byte(helpFormat), b[0])
	require.True(t, strings.HasSuffix(fmt.Sprintf("%x", b), "07000000ffffffff"))
	_, err := decodeWork(b[:len(b)-1])
	require.ErrorContains(t, err, "truncated")
	b[len(b)-8] = 10
	_, err = decodeWork(b)
	require.ErrorContains(t, err, "the helper has 10 positions before position 9")
}
