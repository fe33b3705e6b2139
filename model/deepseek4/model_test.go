package deepseek4_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/deepseek4"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// small is a model that has every kind of layer and runs in milliseconds.
func small(t testing.TB) synthetic.Config {
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	c.Layers, c.Embd, c.Heads, c.HeadDim, c.RotDim = 5, 64, 4, 64, 32
	c.QRank, c.ORank, c.OGroups, c.Window = 32, 32, 2, 24
	c.Experts, c.Used, c.FF, c.HashLayers = 7, 3, 32, 1
	c.IndexHeads, c.IndexDim, c.TopK = 4, 32, 8
	c.Ratios = []int{0, 4, 128, 4, 128}
	c.Types = synthetic.Types{Gate: gguf.Q8_0, Up: gguf.Q8_0, Down: gguf.Q8_0, Dense: gguf.Q8_0,
		Aux: gguf.F16, Embd: gguf.F16, Output: gguf.Q8_0}
	return c
}

// randomShape draws a model: the ratio patterns of Pro and Flash and others,
// odd numbers of experts, all the mixes of weight types that rows of 32 and 256
// allow.
func randomShape(t testing.TB, r *rand.Rand) synthetic.Config {
	c := small(t)
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	c.Seed = r.Uint64()
	c.Layers = 2 + r.IntN(4)
	c.Ratios = make([]int, c.Layers)
	for i := range c.Ratios {
		c.Ratios[i] = pick(0, 4, 4, 128)
	}
	c.HashLayers = r.IntN(c.Layers)
	c.Embd = pick(32, 96, 256)
	c.OGroups = pick(1, 2, 4)
	c.Heads = c.OGroups * pick(1, 2, 3)
	c.HeadDim, c.IndexDim = pick(32, 64, 96), pick(32, 64)
	c.RotDim = pick(8, 16, 32)
	c.QRank, c.ORank = pick(32, 64), pick(32, 64)
	c.Window = pick(1, 5, 24, 128)
	c.Experts = 1 + r.IntN(40)
	c.Used = 1 + r.IntN(min(c.Experts, 6))
	c.FF = pick(32, 64)
	c.IndexHeads = 1 + r.IntN(5)
	c.TopK = pick(1, 2, 9, 33)
	c.Streams = pick(1, 2, 4, 4)
	block32 := []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.IQ4NL, gguf.MXFP4}
	gateUp := block32
	if c.Embd == 256 {
		gateUp = append(gateUp, gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.IQ1S, gguf.IQ1M,
			gguf.IQ2XXS, gguf.IQ2XS, gguf.IQ2S, gguf.IQ3XXS, gguf.IQ3S, gguf.IQ4XS)
	}
	c.Types.Gate, c.Types.Up = gateUp[r.IntN(len(gateUp))], gateUp[r.IntN(len(gateUp))]
	c.Types.Down = block32[r.IntN(len(block32))]
	c.Types.Dense = []gguf.Type{gguf.F32, gguf.Q8_0, gguf.Q8_0, gguf.BF16}[r.IntN(4)]
	c.Types.Aux = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0}[r.IntN(4)]
	return c
}

func write(t testing.TB, c synthetic.Config) string {
	path := filepath.Join(t.TempDir(), "model.gguf")
	_, err := c.WriteFile(path)
	require.NoError(t, err)
	return path
}

// open loads a model; it is closed with the test.
func open(t testing.TB, path string, threads int, o deepseek4.Options) *deepseek4.Model {
	f, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	b, err := cpu.New(threads)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	m, err := deepseek4.Open(f, b, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func randomIDs(r *rand.Rand, vocab, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(int32(vocab))
	}
	return ids
}

// feed runs ids from position pos in chunks drawn by next, commits each and
// returns all logits.
func feed(t testing.TB, m model.Model, seq model.SeqID, pos int, ids []int32, next func() int) [][]float32 {
	var out [][]float32
	for at := 0; at < len(ids); {
		n := min(next(), len(ids)-at)
		s := model.Step{Entries: []model.Entry{{Seq: seq, Pos: pos + at, Tokens: ids[at : at+n], Want: model.WantAll}}}
		rows, err := m.Forward(context.Background(), s)
		require.NoError(t, err)
		require.Len(t, rows, n)
		for _, r := range rows {
			out = append(out, append([]float32(nil), r...))
		}
		m.Commit(s)
		at += n
	}
	return out
}

func always(n int) func() int { return func() int { return n } }

func requireSame(t testing.TB, want, got [][]float32, what string) {
	require.Equal(t, len(want), len(got), what)
	for i := range want {
		for j := range want[i] {
			if math.Float32bits(want[i][j]) != math.Float32bits(got[i][j]) {
				require.Failf(t, "logits differ", "%s: token %d, logit %d: %v and %v", what, i, j, want[i][j], got[i][j])
			}
		}
	}
}

func requireFinite(t testing.TB, rows [][]float32) {
	for i, row := range rows {
		for j, v := range row {
			require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0), "token %d, logit %d is %v", i, j, v)
		}
	}
}

// TestChunksAndThreads: for random shapes a prompt in one pass, in chunks and
// token by token, on one thread and on more, gives the same bits.
func TestChunksAndThreads(t *testing.T) {
	shapes := 4
	if testenv.Rest(t, testenv.Full, "12 more shapes") {
		shapes = 16
	}
	for i := range shapes {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			c := randomShape(t, r)
			path := write(t, c)
			ids := randomIDs(r, c.Vocab, 300)
			o := deepseek4.Options{MaxTokens: len(ids)}
			whole := feed(t, open(t, path, 1, o), 1, 0, ids, always(len(ids)))
			requireFinite(t, whole)
			requireSame(t, whole, feed(t, open(t, path, 2, o), 1, 0, ids, always(len(ids))), "two threads")
			requireSame(t, whole, feed(t, open(t, path, 3, o), 1, 0, ids, func() int { return 1 + r.IntN(130) }), "chunks, three threads")
			requireSame(t, whole, feed(t, open(t, path, 2, deepseek4.Options{MaxTokens: 1}), 1, 0, ids, always(1)), "token by token")
		})
	}
}

// TestStepLeavesNoTrace: a step that was cancelled or not committed does not
// change later results, nor do tokens that were rewound.
func TestStepLeavesNoTrace(t *testing.T) {
	c := small(t)
	path := write(t, c)
	r := rand.New(rand.NewPCG(3, 4))
	ids := randomIDs(r, c.Vocab, 300)
	const most = 96
	o := deepseek4.Options{MaxTokens: most}
	want := feed(t, open(t, path, 2, o), 1, 0, ids, always(most))

	m := open(t, path, 2, o)
	var got [][]float32
	length, peak := 0, 0
	for at := 0; at < len(ids); {
		for range r.IntN(3) {
			other := model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: randomIDs(r, c.Vocab, 1+r.IntN(most)), Want: model.WantLast}}}
			_, err := m.Forward(context.Background(), other)
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := m.Forward(ctx, model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: ids[at : at+1]}}})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, length, m.Len(1))

		n := min(1+r.IntN(most), len(ids)-at)
		got = append(got, feed(t, m, 1, at, ids[at:at+n], always(n))...)
		at += n

		// Some wrong tokens are committed, to be rewound by the steps that
		// follow: from the greatest length, as far as is allowed.
		back := r.IntN(m.Info().Rewind + 1)
		feed(t, m, 1, at, randomIDs(r, c.Vocab, back), func() int { return 1 + r.IntN(most) })
		length = at + back
		peak = max(peak, length)
		_, err = m.Forward(context.Background(), model.Step{Entries: []model.Entry{{Seq: 1, Pos: peak - m.Info().Rewind - 1, Tokens: ids[:1]}}})
		if peak > m.Info().Rewind+1 {
			require.ErrorContains(t, err, "rewind")
		}
	}
	requireSame(t, want, got, "after steps that do not count")
}

// TestSequencesDoNotMix: other sequences in a step do not change an answer.
func TestSequencesDoNotMix(t *testing.T) {
	c := small(t)
	path := write(t, c)
	r := rand.New(rand.NewPCG(5, 6))
	const most = 128
	o := deepseek4.Options{MaxTokens: most}
	ids := [][]int32{randomIDs(r, c.Vocab, 200), randomIDs(r, c.Vocab, 150), randomIDs(r, c.Vocab, 260)}
	alone := make([][][]float32, len(ids))
	m := open(t, path, 2, o)
	for i := range ids {
		alone[i] = feed(t, m, model.SeqID(100+i), 0, ids[i], always(most))
	}
	m.Commit(model.Step{Drop: []model.SeqID{100, 101, 102}})
	require.Zero(t, m.Len(100))

	together := make([][][]float32, len(ids))
	at := make([]int, len(ids))
	for {
		var s model.Step
		room := most
		for _, i := range r.Perm(len(ids)) {
			if n := min(r.IntN(60), len(ids[i])-at[i], room); n > 0 {
				s.Entries = append(s.Entries, model.Entry{Seq: model.SeqID(i), Pos: at[i], Tokens: ids[i][at[i] : at[i]+n], Want: model.WantAll})
				room -= n
			}
		}
		rows, err := m.Forward(context.Background(), s)
		require.NoError(t, err)
		for _, e := range s.Entries {
			for range e.Tokens {
				together[e.Seq] = append(together[e.Seq], append([]float32(nil), rows[0]...))
				rows = rows[1:]
			}
			at[e.Seq] += len(e.Tokens)
		}
		m.Commit(s)
		if at[0] == len(ids[0]) && at[1] == len(ids[1]) && at[2] == len(ids[2]) {
			break
		}
	}
	for i := range ids {
		requireSame(t, alone[i], together[i], fmt.Sprint("sequence ", i))
	}
}

// TestWants: only the wanted rows are returned, and their contents do not
// change.
func TestWants(t *testing.T) {
	c := small(t)
	m := open(t, write(t, c), 1, deepseek4.Options{MaxTokens: 32})
	ids := randomIDs(rand.New(rand.NewPCG(1, 1)), c.Vocab, 20)
	all := feed(t, m, 1, 0, ids, always(20))
	rows, err := m.Forward(context.Background(), model.Step{Entries: []model.Entry{
		{Seq: 2, Tokens: ids[:7], Want: model.WantNone},
		{Seq: 3, Tokens: ids[:9], Want: model.WantLast},
		{Seq: 4, Tokens: ids[:3], Want: model.WantAll},
	}})
	require.NoError(t, err)
	requireSame(t, [][]float32{all[8], all[0], all[1], all[2]}, rows, "wanted rows")
}

// TestAliases: a file with the alternative tensor names, or with gate and up
// merged in one tensor, gives the same model.
func TestAliases(t *testing.T) {
	c := small(t)
	ids := randomIDs(rand.New(rand.NewPCG(8, 9)), c.Vocab, 200)
	o := deepseek4.Options{MaxTokens: 200}
	want := feed(t, open(t, write(t, c), 2, o), 1, 0, ids, always(200))
	c.Alias = true
	requireSame(t, want, feed(t, open(t, write(t, c), 2, o), 1, 0, ids, always(200)), "aliases")
}

// TestReduceExact: rounding each expert's output to float16 changes the logits,
// but only a little, and they remain independent of chunks.
func TestReduceExact(t *testing.T) {
	c := small(t)
	path := write(t, c)
	ids := randomIDs(rand.New(rand.NewPCG(8, 9)), c.Vocab, 150)
	sum := feed(t, open(t, path, 2, deepseek4.Options{}), 1, 0, ids, always(150))
	exact := feed(t, open(t, path, 2, deepseek4.Options{Reduce: parallel.Exact}), 1, 0, ids, always(150))
	requireSame(t, exact, feed(t, open(t, path, 1, deepseek4.Options{Reduce: parallel.Exact}), 1, 0, ids, always(7)), "exact in chunks")
	var diff, all float64
	for i := range sum {
		for j := range sum[i] {
			d := float64(sum[i][j] - exact[i][j])
			diff += d * d
			all += float64(sum[i][j]) * float64(sum[i][j])
		}
	}
	require.NotZero(t, diff)
	require.Less(t, math.Sqrt(diff/all), 0.05)
}

// TestStepErrors: an invalid step is refused with the reason.
func TestStepErrors(t *testing.T) {
	c := small(t)
	m := open(t, write(t, c), 1, deepseek4.Options{MaxTokens: 16, Context: 100})
	feed(t, m, 1, 0, make([]int32, 99), always(16))
	for want, entries := range map[string][]model.Entry{
		"entry without tokens":               {{Seq: 9}},
		"twice in one step":                  {{Seq: 9, Tokens: []int32{1}}, {Seq: 9, Tokens: []int32{1}}},
		"at position 3, but it has 0":        {{Seq: 9, Pos: 3, Tokens: []int32{1}}},
		"rewind from 99 to 20":               {{Seq: 1, Pos: 20, Tokens: []int32{1}}},
		"beyond the context of 100":          {{Seq: 1, Pos: 99, Tokens: []int32{1, 2}}},
		"a step of more than 16 tokens":      {{Seq: 9, Tokens: make([]int32, 17)}},
		"token 512 at position 1":            {{Seq: 9, Tokens: []int32{1, 512}}},
		"token -1 at position 0; the vocabu": {{Seq: 9, Tokens: []int32{-1}}},
	} {
		_, err := m.Forward(context.Background(), model.Step{Entries: entries})
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, 99, m.Len(1))
	require.Zero(t, m.Len(9))
}
