package deepseek4_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/model"
	"ringmaster/model/builtin"
	"ringmaster/model/deepseek4"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// history is one random run: steps with their committed entries.
func history(r *rand.Rand, vocab int) []model.Step {
	var steps []model.Step
	at := map[model.SeqID]int{}
	add := func(entries ...model.Entry) {
		for i := range entries {
			e := &entries[i]
			e.Pos = at[e.Seq]
			at[e.Seq] += len(e.Tokens)
		}
		steps = append(steps, model.Step{Entries: entries})
	}
	tokens := func(seq model.SeqID, n int, want model.Want) model.Entry {
		return model.Entry{Seq: seq, Tokens: randomIDs(r, vocab, n), Want: want}
	}
	add(tokens(1, 37, model.WantAll))
	add(tokens(1, 1, model.WantLast), tokens(2, 29, model.WantNone))
	add(tokens(2, 13, model.WantLast), tokens(3, 3, model.WantAll), tokens(1, 1, model.WantLast))
	for range 3 {
		add(tokens(3, 1, model.WantLast), tokens(1, 1, model.WantLast), tokens(2, 1, model.WantLast))
	}
	add(tokens(4, 1, model.WantLast))
	return steps
}

// play runs the steps and returns all logits and all digests.
func play(m *deepseek4.Model, steps []model.Step) (logits [][]float32, digests [][]uint32, err error) {
	for _, s := range steps {
		if err := m.Prepare(s); err != nil {
			return nil, nil, err
		}
		rows, err := m.Run(context.Background())
		if err != nil {
			return nil, nil, err
		}
		for _, row := range rows {
			logits = append(logits, append([]float32(nil), row...))
		}
		digests = append(digests, append([]uint32(nil), m.Digest()...))
		m.Commit(s)
	}
	return logits, digests, nil
}

// openOn loads a model on a single-threaded backend, deferred if lazy is set.
func openOn(t testing.TB, f *gguf.File, lazy bool, o deepseek4.Options) *deepseek4.Model {
	var b kernels.Backend
	b, err := cpu.New(1)
	require.NoError(t, err)
	if lazy {
		b = deferred.Wrap(b)
	}
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	m, err := deepseek4.Open(f, b, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// members are the models of a group in one process.
type members []*deepseek4.Model

func openAll(t testing.TB, f *gguf.File, n int, lazy bool, o deepseek4.Options) members {
	all := make(members, n)
	for i := range all {
		all[i] = openOn(t, f, lazy, o)
	}
	return all
}

// bothShares are the choices of what is divided.
var bothShares = []parallel.Share{parallel.ShareExperts, parallel.ShareAll}

// place divides the members' model.
func (all members) place(t testing.TB, how parallel.Share, shares []float64) parallel.Placement {
	p, err := parallel.Place(how, all[0].Sizes(), shares)
	require.NoError(t, err)
	return p
}

// join forms a new group of all members, without sequences.
func (all members) join(t testing.TB, how parallel.Share, shares []float64) {
	for _, m := range all {
		m.Forget()
	}
	all.rejoin(t, how, shares)
}

// rejoin forms a new group of all members, whose sequences live on.
func (all members) rejoin(t testing.TB, how parallel.Share, shares []float64) {
	p := all.place(t, how, shares)
	for r, g := range memory.Groups(len(all)) {
		require.NoError(t, all[r].Join(g, p))
	}
}

// TestSequencesOutliveTheirGroup: after each step the survivors form a new group, with
// other ranks, shares and divisions, and run a step that was interrupted again; the
// logits are the bits of one rank that was never disturbed.
func TestSequencesOutliveTheirGroup(t *testing.T) {
	c := small(t)
	f := inMemory(t, c)
	steps := history(rand.New(rand.NewPCG(81, 82)), c.Vocab)
	o := deepseek4.Options{MaxTokens: 48, Reduce: parallel.Exact}
	for _, lazy := range []bool{false, true} {
		one := openOn(t, f, false, o)
		all := openAll(t, f, 4, lazy, o)
		all.join(t, parallel.ShareAll, ones(4))
		r := rand.New(rand.NewPCG(83, 84))
		for i, step := range steps {
			want, _, err := play(one, []model.Step{step})
			require.NoError(t, err)
			if i > 0 {
				// The last rank dies, on every other occasion within the step.
				if i%2 == 0 && len(all) > 2 {
					all.interrupted(t, step)
				}
				if i%2 == 1 && len(all) > 1 {
					all = all[:len(all)-1]
				}
				shares := make([]float64, len(all))
				for i := range shares {
					shares[i] = 0.2 + r.Float64()
				}
				all.rejoin(t, bothShares[r.IntN(2)], shares)
			}
			requireSame(t, want, all.play(t, []model.Step{step}), fmt.Sprintf("step %d on %d ranks", i, len(all)))
			require.Equal(t, one.Len(1), all[0].Len(1))
		}
		require.Len(t, all, 1, "all but one are lost in the end")
	}
}

// interrupted runs a step in which the last rank has failed: the others get an error.
func (all members) interrupted(t *testing.T, step model.Step) {
	groups := memory.Groups(len(all))
	p := all.place(t, parallel.ShareAll, ones(len(all)))
	groups[len(all)-1].Fail(&distributed.PeerError{Rank: len(all) - 1, Cause: "connection closed"})
	var done sync.WaitGroup
	errs := make([]error, len(all)-1)
	for r := range errs {
		require.NoError(t, all[r].Join(groups[r], p))
		done.Go(func() { _, errs[r] = all[r].Forward(context.Background(), step) })
	}
	done.Wait()
	for _, err := range errs {
		require.ErrorIs(t, err, distributed.ErrPeerGone)
	}
}

// play runs the steps on all ranks, checks that all ranks did the same, and
// returns the logits of rank 0.
func (all members) play(t testing.TB, steps []model.Step) [][]float32 {
	logits, digests, errs := make([][][]float32, len(all)), make([][][]uint32, len(all)), make([]error, len(all))
	var done sync.WaitGroup
	for r, m := range all {
		done.Go(func() { logits[r], digests[r], errs[r] = play(m, steps) })
	}
	done.Wait()
	for r := range all {
		require.NoError(t, errs[r], "rank %d", r)
		require.Equal(t, digests[0], digests[r], "rank %d", r)
		if r > 0 {
			require.Empty(t, logits[r])
		}
	}
	return logits[0]
}

func ones(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

var groupShares = [][]float64{
	ones(1), ones(2), ones(3), ones(4), ones(5), ones(8),
	{3, 1}, {1, 2, 4}, {5, 1, 1, 2}, {1, 2, 3, 4, 5}, {8, 7, 6, 5, 4, 3, 2, 1},
}

// TestExactOnAnyRanks: with exact the logits of any number of ranks, with any
// shares, are the bits of one rank: prefill in odd chunks, decode, several
// sequences in a step.
func TestExactOnAnyRanks(t *testing.T) {
	c := small(t)
	c.Experts = 19
	f := inMemory(t, c)
	steps := history(rand.New(rand.NewPCG(21, 22)), c.Vocab)
	o := deepseek4.Options{MaxTokens: 48, Reduce: parallel.Exact}
	want, digests, err := play(openOn(t, f, false, o), steps)
	require.NoError(t, err)
	require.Empty(t, digests[0], "nobody has to agree")
	requireFinite(t, want)
	for _, shares := range groupShares {
		all := openAll(t, f, len(shares), false, o)
		for _, how := range bothShares {
			all.join(t, how, shares)
			requireSame(t, want, all.play(t, steps), fmt.Sprint(how, shares))
		}
	}
	o.Wire = parallel.F32
	for _, how := range bothShares {
		all := openAll(t, f, 3, false, o)
		all.join(t, how, ones(3))
		requireSame(t, want, all.play(t, steps), "float32 on the wire")
	}
}

// TestExactOfRandomShapes: the same for other shapes and weight types.
func TestExactOfRandomShapes(t *testing.T) {
	for i := range 6 {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 71))
			c := randomShape(t, r)
			f := inMemory(t, c)
			steps := history(r, c.Vocab)
			o := deepseek4.Options{MaxTokens: 48, Reduce: parallel.Exact}
			want, _, err := play(openOn(t, f, false, o), steps)
			require.NoError(t, err)
			shares := make([]float64, 2+r.IntN(4))
			for i := range shares {
				shares[i] = 0.1 + r.Float64()
			}
			all := openAll(t, f, len(shares), false, o)
			for _, how := range bothShares {
				all.join(t, how, shares)
				requireSame(t, want, all.play(t, steps), fmt.Sprint(how, shares))
			}
		})
	}
}

// TestExactOfWholeModels: the same for the built-in model and two with V4's
// layer pattern, one of them of 1 GB with 256 experts, in prefill chunks and
// decode.
func TestExactOfWholeModels(t *testing.T) {
	files := map[string]*gguf.File{}
	inside, err := builtin.Open()
	require.NoError(t, err)
	defer inside.Close()
	files["built in"] = inside
	tiny, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	files["tiny"] = inMemory(t, tiny)
	if testenv.Rest(t, testenv.Full, "small256, a file of 1 GB") {
		small256, err := synthetic.Preset("small256")
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "small256.gguf")
		_, err = small256.WriteFile(path)
		require.NoError(t, err)
		f, err := gguf.Open(path)
		require.NoError(t, err)
		defer f.Close()
		files["small256"] = f
	}
	for name, f := range files {
		t.Run(name, func(t *testing.T) {
			o := deepseek4.Options{MaxTokens: 48, Reduce: parallel.Exact}
			one := openOn(t, f, false, o)
			steps := history(rand.New(rand.NewPCG(33, 34)), min(one.Info().Vocab, 400))
			want, _, err := play(one, steps)
			require.NoError(t, err)
			requireFinite(t, want)
			for i, shares := range [][]float64{ones(2), {3, 2, 1}, ones(3), {5, 1, 1, 2}, ones(4), ones(5), ones(8), {8, 7, 6, 5, 4, 3, 2, 1}} {
				all := openAll(t, f, len(shares), false, o)
				how := bothShares[(i+1)%2]
				all.join(t, how, shares)
				requireSame(t, want, all.play(t, steps), fmt.Sprint(how, shares))
			}
		})
	}
}

// distance is the root mean square of the difference, relative to want, of the
// median row: rows where two experts were nearly tied may be far off.
func distance(want, got [][]float32) float64 {
	rows := make([]float64, len(want))
	for i := range want {
		var diff, all float64
		for j, w := range want[i] {
			d := float64(w - got[i][j])
			diff += d * d
			all += float64(w) * float64(w)
		}
		rows[i] = math.Sqrt(diff / all)
	}
	slices.Sort(rows)
	return rows[len(rows)/2]
}

// TestSumOnAnyRanks: with sum all ranks agree among themselves, and are close
// to one rank, closer with float32 on the wire.
func TestSumOnAnyRanks(t *testing.T) {
	c := small(t)
	f := inMemory(t, c)
	steps := history(rand.New(rand.NewPCG(23, 24)), c.Vocab)
	want, _, err := play(openOn(t, f, false, deepseek4.Options{MaxTokens: 48}), steps)
	require.NoError(t, err)
	for _, how := range bothShares {
		for _, shares := range groupShares[1:] {
			var far [2]float64
			for _, wire := range []parallel.Wire{parallel.F16, parallel.F32} {
				all := openAll(t, f, len(shares), false, deepseek4.Options{MaxTokens: 48, Wire: wire})
				all.join(t, how, shares)
				far[wire] = distance(want, all.play(t, steps))
			}
			t.Logf("%v %v: f16 %.2g, f32 %.2g", how, shares, far[parallel.F16], far[parallel.F32])
			require.Less(t, far[parallel.F16], 0.005)
			require.Less(t, far[parallel.F32], far[parallel.F16]/2)
		}
	}
}

// TestOverflowOnRanks: expert outputs beyond the range of float16 make the ranks
// repeat the exchange in float32, and are counted; the logits are finite and
// equal on all ranks.
func TestOverflowOnRanks(t *testing.T) {
	c := small(t)
	c.WeightsScale = 1e7
	f := inMemory(t, c)
	steps := history(rand.New(rand.NewPCG(25, 26)), c.Vocab)
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		o := deepseek4.Options{MaxTokens: 48, Reduce: reduce}
		want, _, err := play(openOn(t, f, false, o), steps)
		require.NoError(t, err)
		requireFinite(t, want)
		for _, how := range bothShares {
			all := openAll(t, f, 3, false, o)
			all.join(t, how, []float64{1, 2, 1})
			got := all.play(t, steps)
			requireFinite(t, got)
			if reduce == parallel.Exact {
				requireSame(t, want, got, "overflow")
			}
			overflows := uint64(0)
			for i, s := range all[0].LayerStats() {
				require.EqualValues(t, exchanges(how)*len(steps), s.Exchanges)
				require.Equal(t, all[1].LayerStats()[i].Overflows, s.Overflows)
				overflows += s.Overflows
			}
			require.NotZero(t, overflows)
		}
	}
}

// exchanges is how many a layer has.
func exchanges(how parallel.Share) int {
	if how == parallel.ShareAll {
		return 2
	}
	return 1
}

// TestGroupFlushes: on backends that run nothing before Flush and show NaN until
// then, the group computes the same bits: what the host sends has been flushed,
// and the host writes nothing that an encoded op still reads.
func TestGroupFlushes(t *testing.T) {
	c := small(t)
	f := inMemory(t, c)
	steps := history(rand.New(rand.NewPCG(27, 28)), c.Vocab)
	for _, o := range []deepseek4.Options{
		{MaxTokens: 48}, {MaxTokens: 48, Wire: parallel.F32}, {MaxTokens: 48, Reduce: parallel.Exact}, {MaxTokens: 48, Reduce: parallel.Exact, Wire: parallel.F32},
	} {
		shares := []float64{2, 1, 1}
		eager, lazy := openAll(t, f, 3, false, o), openAll(t, f, 3, true, o)
		for _, how := range bothShares {
			eager.join(t, how, shares)
			lazy.join(t, how, shares)
			requireSame(t, eager.play(t, steps), lazy.play(t, steps), fmt.Sprint(how, o.Reduce, o.Wire))
		}
	}
}

// TestEpochs: the same models join one group after another, with other sizes
// and shares, and run alone in between; no state of one epoch is left in the
// next.
func TestEpochs(t *testing.T) {
	c := small(t)
	f := inMemory(t, c)
	steps := history(rand.New(rand.NewPCG(29, 30)), c.Vocab)
	for _, lazy := range []bool{false, true} {
		o := deepseek4.Options{MaxTokens: 48, Reduce: parallel.Exact}
		want, _, err := play(openOn(t, f, false, o), steps)
		require.NoError(t, err)
		all := openAll(t, f, 3, lazy, o)
		all.join(t, parallel.ShareAll, []float64{1, 5, 1})
		requireSame(t, want, all.play(t, steps), "first")
		require.Positive(t, all[1].Len(1))

		// The third rank dies within a step: the other two are told.
		group := memory.Groups(3)
		placement := all.place(t, parallel.ShareExperts, ones(3))
		verdict := &distributed.PeerError{Rank: 2, Addr: "host-c", Cause: "connection closed"}
		var done sync.WaitGroup
		errs := make([]error, 2)
		for r := range errs {
			all[r].Forget()
			require.Zero(t, all[r].Len(1))
			require.NoError(t, all[r].Join(group[r], placement))
			done.Go(func() { _, _, errs[r] = play(all[r], steps) })
		}
		group[2].Fail(verdict)
		done.Wait()
		for _, err := range errs {
			require.ErrorContains(t, err, "deepseek4: layer 0: all_gather")
			require.ErrorIs(t, err, distributed.ErrPeerGone)
			require.ErrorContains(t, err, "rank 2 at host-c")
		}

		two := all[:2]
		two.join(t, parallel.ShareAll, []float64{1, 3})
		requireSame(t, want, two.play(t, steps), "two are left")
		all[0].Forget()
		require.NoError(t, all[0].Join(nil, nil))
		got, _, err := play(all[0], steps)
		require.NoError(t, err)
		requireSame(t, want, got, "alone")
		all.join(t, parallel.ShareAll, ones(3))
		requireSame(t, want, all.play(t, steps), "all again")
	}
}

// TestDigestSees: different tokens give a different digest, of the choices or at
// least of the hidden state; a step without rows has no digest.
func TestDigestSees(t *testing.T) {
	c := small(t)
	f := inMemory(t, c)
	digest := func(token int32) []uint32 {
		all := openAll(t, f, 2, false, deepseek4.Options{MaxTokens: 8})
		all.join(t, parallel.ShareExperts, ones(2))
		all.play(t, []model.Step{{Entries: []model.Entry{{Seq: 1, Tokens: []int32{5, token}, Want: model.WantNone}}}})
		d := append([]uint32(nil), all[0].Digest()...)
		all.play(t, []model.Step{{Drop: []model.SeqID{1}}})
		require.Empty(t, all[0].Digest())
		return d
	}
	one, same, other := digest(7), digest(7), digest(8)
	require.Len(t, one, c.Layers+1)
	require.Equal(t, one, same)
	require.NotEqual(t, one[0], other[0], "the first layer chooses by token")
	require.NotEqual(t, one[c.Layers], other[c.Layers])
}

// TestPrepare: a prepared step needs no more memory, and a step that cannot be
// prepared is refused as Forward would refuse it.
func TestPrepare(t *testing.T) {
	c := small(t)
	f := inMemory(t, c)
	inner, err := cpu.New(1)
	require.NoError(t, err)
	b := &counting{Backend: inner}
	defer b.Close()
	m, err := deepseek4.Open(f, b, deepseek4.Options{MaxTokens: 64})
	require.NoError(t, err)
	step := model.Step{Entries: []model.Entry{
		{Seq: 1, Tokens: make([]int32, 40), Want: model.WantAll}, {Seq: 2, Tokens: make([]int32, 3), Want: model.WantLast}}}
	require.NoError(t, m.Prepare(step))
	require.Zero(t, m.Len(1))
	before := b.allocs
	require.Positive(t, before)
	_, err = m.Run(context.Background())
	require.NoError(t, err)
	require.Equal(t, before, b.allocs)
	m.Commit(step)

	gap := model.Step{Entries: []model.Entry{{Seq: 1, Pos: 50, Tokens: []int32{1}}}}
	require.ErrorContains(t, m.Prepare(gap), "at position 50, but it has 40")
	b.full = true
	more := model.Step{Entries: []model.Entry{{Seq: 3, Tokens: make([]int32, 2)}}}
	err = m.Prepare(more)
	require.ErrorIs(t, err, model.ErrNoMemory)
	var which *model.MemoryError
	require.ErrorAs(t, err, &which)
	require.EqualValues(t, 3, which.Seq)
	b.full = false
	require.NoError(t, m.Prepare(more))
	require.NoError(t, m.Close())
}

// counting counts allocations and can be told to refuse more.
type counting struct {
	kernels.Backend
	allocs int
	full   bool
}

func (b *counting) Alloc(n int) ([]byte, error) {
	if b.full {
		return nil, fmt.Errorf("no %d bytes", n)
	}
	b.allocs++
	return b.Backend.Alloc(n)
}

// TestStatsFromOutside: the statistics may be read while the model runs.
func TestStatsFromOutside(t *testing.T) {
	c := small(t)
	f := inMemory(t, c)
	all := openAll(t, f, 2, false, deepseek4.Options{MaxTokens: 48})
	all.join(t, parallel.ShareExperts, ones(2))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				all[0].LayerStats()
			}
		}
	}()
	steps := history(rand.New(rand.NewPCG(31, 32)), c.Vocab)
	all.play(t, steps)
	close(stop)
	<-done
	stats := all[0].LayerStats()
	require.Len(t, stats, c.Layers)
	rows := 0
	for _, s := range steps {
		for _, e := range s.Entries {
			rows += len(e.Tokens)
		}
	}
	for _, s := range stats {
		require.Positive(t, s.Compute)
		require.EqualValues(t, 2*rows*c.Embd, s.Sent, "half a row of the hidden size for each token, once")
		require.EqualValues(t, len(steps), s.Exchanges)
	}
}
