package decodertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// branch is a sequence of a history of replays.
type branch struct {
	seq      model.SeqID
	tokens   []int32 // that it has, and in a replay those that it is to run
	at, peak int     // committed
	until    int     // of the entries that come next; 0: it is whole
	replayed int     // up to which length it runs tokens again
	taken    []int   // checkpoints
}

// history is steps with forks that run tokens again, and what their rows of logits depend on.
type history struct {
	r     *rand.Rand
	info  model.Info
	steps []model.Step
	rows  [][]int32 // for each row of logits, the tokens up to its own
	last  model.SeqID
	forks int // with Replay
}

// replays draws steps: a first sequence grows to length tokens, others begin as replays at any
// length of one that there is, also of one that is partial or dropped by the same step. They
// run together, in chunks of any length, with an Until that may grow; then they want logits,
// rewind, take checkpoints and are forked in turn.
func replays(r *rand.Rand, info model.Info, length, steps int) *history {
	h := &history{r: r, info: info, last: 1}
	first := &branch{seq: 1, tokens: RandomIDs(r, info.Vocab, length), until: r.IntN(2) * (length + r.IntN(2)*info.Tail)}
	live := []*branch{first}
	for first.at < length {
		h.step(nil, []*branch{first})
	}
	for range steps {
		var s model.Step
		if len(live) < 4 && r.IntN(2) == 0 {
			if from := live[r.IntN(len(live))]; from.at > info.Replay {
				b := h.fork(&s, from)
				if len(live) > 2 && r.IntN(3) == 0 {
					live = slices.DeleteFunc(live, func(x *branch) bool { return x == from })
					s.Drop = append(s.Drop, from.seq)
				}
				live = append(live, b)
			}
		}
		h.step(&s, live)
	}
	return h
}

// fork adds a replay of a branch to a step.
func (h *history) fork(s *model.Step, from *branch) *branch {
	h.last++
	h.forks++
	f := model.Fork{Seq: h.last, From: from.seq, Length: h.info.Replay + 1 + h.r.IntN(from.at-h.info.Replay), Replay: true}
	s.Forks = append(s.Forks, f)
	b := &branch{seq: f.Seq, at: h.info.Begins(f), replayed: f.Length, until: f.Length}
	b.peak = b.at + h.info.Rewind
	if h.r.IntN(2) == 0 { // with further tokens the last layers need few of those that run again, or none
		b.until += 1 + h.r.IntN(2*h.info.Tail)
	}
	b.tokens = append(slices.Clone(from.tokens[:f.Length]), RandomIDs(h.r, h.info.Vocab, b.until-f.Length)...)
	for _, n := range from.taken {
		if n <= b.at {
			b.taken = append(b.taken, n)
		}
	}
	return b
}

// step adds entries of some branches to a step and the step to the history, if it has any.
func (h *history) step(s *model.Step, live []*branch) {
	if s == nil {
		s = &model.Step{}
	}
	dropped := func(b *branch) bool { return slices.Contains(s.Drop, b.seq) }
	room := h.info.MaxTokens
	for _, i := range h.r.Perm(len(live)) {
		b := live[i]
		if room == 0 || dropped(b) || h.r.IntN(4) == 0 && len(live) > 1 {
			continue
		}
		e := model.Entry{Seq: b.seq, Pos: b.at}
		n := min(1+h.r.IntN(h.info.MaxTokens), room)
		if b.at < len(b.tokens) || b.until > b.at {
			if h.r.IntN(4) == 0 && b.until > 0 && len(b.tokens) < b.until+20 { // a later one may be promised
				b.until += 5
			}
			if more := max(b.until, b.replayed) - len(b.tokens); more > 0 {
				b.tokens = append(b.tokens, RandomIDs(h.r, h.info.Vocab, more)...)
			}
			n = min(n, max(b.until, len(b.tokens))-b.at)
			if e.Until = b.until; b.until > 0 {
				n = min(n, b.until-b.at)
				if b.at+n == b.until {
					e.Want = model.Want(h.r.IntN(2))
				}
			}
		} else {
			if !slices.Contains(b.taken, b.at) && len(b.taken) < 4 && h.r.IntN(4) == 0 {
				b.taken = append(slices.Clip(b.taken), b.at)
				s.Checkpoints = append(s.Checkpoints, model.Checkpoints{Seq: b.seq, At: b.taken})
			} else if back := h.back(b); back < b.at && h.r.IntN(2) == 0 {
				e.Pos -= back
				b.taken = upTo(b.taken, e.Pos)
			}
			n, e.Want = min(1+h.r.IntN(4), room), model.WantAll
			b.tokens = append(b.tokens[:e.Pos:e.Pos], RandomIDs(h.r, h.info.Vocab, n)...)
		}
		e.Tokens = b.tokens[e.Pos : e.Pos+n]
		b.at, room = e.Pos+n, room-n
		b.peak = max(b.peak, b.at)
		if b.at >= b.until {
			b.until = 0
		}
		if b.at >= b.replayed {
			b.replayed = 0
		}
		for i := range n {
			if e.Want == model.WantAll || e.Want == model.WantLast && i == n-1 {
				h.rows = append(h.rows, b.tokens[:e.Pos+i+1:e.Pos+i+1])
			}
		}
		s.Entries = append(s.Entries, e)
	}
	if len(s.Entries)+len(s.Forks) > 0 {
		h.steps = append(h.steps, *s)
	}
}

// back is how many positions a branch is rewound by, half the time as many as it can be.
func (h *history) back(b *branch) int {
	most := h.info.Rewind - (b.peak - b.at)
	if h.r.IntN(2) == 0 {
		return most
	}
	return h.r.IntN(most + 1)
}

// expected is the logits of each row of a history, from sequences of their own that run all of
// their tokens.
func (h *history) expected(t testing.TB, m model.Model) [][]float32 {
	t.Helper()
	want := make([][]float32, len(h.rows))
	seq := model.SeqID(1000)
	order := make([]int, len(h.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(h.rows[a], h.rows[b]) })
	for i := len(order) - 1; i >= 0; { // the longest of those that continue each other first
		whole := h.rows[order[i]]
		seq++
		logits := Feed(t, m, seq, 0, whole, Always(h.info.MaxTokens))
		for ; i >= 0; i-- {
			row := h.rows[order[i]]
			if len(row) > len(whole) || !slices.Equal(row, whole[:len(row)]) {
				break
			}
			want[order[i]] = logits[len(row)-1]
		}
		m.Commit(model.Step{Drop: []model.SeqID{seq}})
	}
	return want
}

// replayed draws a history for a model file.
func (a Architecture) replayed(t testing.TB, f *gguf.File, r *rand.Rand, o decoder.OpenOptions) (*history, [][]float32) {
	m := a.OpenOn(t, f, false, o)
	h := replays(r, m.Info(), m.Info().Replay+20+r.IntN(200), 60)
	require.Positive(t, h.forks)
	return h, h.expected(t, m)
}

// Replay checks that forks which run their last tokens again have the bits of sequences that
// ran all, also of random shapes.
func (a Architecture) Replay(t *testing.T) {
	a.shapes(t, [3]int{3, 10, 60}, 1001, func(t *testing.T, r *rand.Rand, f *gguf.File, lazy bool) {
		o := decoder.OpenOptions{MaxTokens: 48}
		h, want := a.replayed(t, f, r, o)
		got, _, err := Play(a.OpenOn(t, f, lazy, o), h.steps)
		require.NoError(t, err)
		RequireSame(t, want, got, "with replays")
	})
}

// ReplayOnRanks checks the same of groups that divide heads or rows or neither, with digests
// that agree, and in stages, where nothing is left out.
func (a Architecture) ReplayOnRanks(t *testing.T) {
	shares := [][]float64{{1, 5, 1}}
	if testenv.Rest(t, testenv.Full, "two, four and five ranks") {
		shares = append(shares, Ones(2), []float64{1, 2, 3, 4}, Ones(5))
	}
	c := a.Small(t)
	f := InMemory(t, c)
	o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact, Wire: parallel.F32}
	for i, s := range shares {
		h, want := a.replayed(t, f, rand.New(rand.NewPCG(47, uint64(i))), o)
		all := a.OpenAll(t, f, len(s), i%2 > 0, o)
		for _, p := range []parallel.Placement{
			all.Place(t, parallel.ShareAll, s), all.Place(t, parallel.ShareAll, s).DivideRows(1),
			all.Place(t, parallel.ShareExperts, s).DivideRows(1),
		} {
			all.join(t, memory.Groups(len(all)), p)
			RequireSame(t, want, all.Play(t, h.steps), fmt.Sprint(s, p))
		}
	}
	plan, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: 48}, 1)
	require.NoError(t, err)
	for i := range 2 {
		r := rand.New(rand.NewPCG(53, uint64(i)))
		h, want := a.replayed(t, f, r, o)
		p := randomStages(t, r, plan, i)
		all := a.OpenAll(t, f, len(p), false, o)
		all.stage(t, memory.Groups(len(all)), p)
		RequireSame(t, want, all.playStages(t, h.steps, nil, p), fmt.Sprint(p.Stages()))
	}
}

// ReplayLeavesOut checks how many rows the layers compute of a replay, what a sequence refuses
// in the midst of one, and that it is copied as such, whole and in parts.
func (a Architecture) ReplayLeavesOut(t *testing.T, c synthetic.Config, window int) {
	inner, err := cpu.New(1)
	require.NoError(t, err)
	b := &routed{Backend: inner}
	f := InMemory(t, c)
	m := a.openWith(t, f, b, decoder.OpenOptions{MaxTokens: 48})
	info := m.Info()
	length := info.Replay + 150
	ids := RandomIDs(rand.New(rand.NewPCG(4, 1)), c.Vocab, length+80)
	want := Feed(t, m, 1, 0, ids, Always(48))
	run := func(s model.Step) [][]float32 {
		rows, err := m.Forward(t.Context(), s)
		require.NoError(t, err)
		m.Commit(s)
		return rows
	}
	entry := func(seq model.SeqID, at, n, until int) model.Entry {
		return model.Entry{Seq: seq, Pos: at, Tokens: ids[at : at+n], Until: until}
	}
	fork := func(seq model.SeqID, length int) model.Fork {
		return model.Fork{Seq: seq, From: 1, Length: length, Replay: true}
	}
	begins := info.Begins(fork(2, length))
	b.rows = 0
	run(model.Step{Forks: []model.Fork{fork(2, length)}})
	require.Equal(t, begins, m.Len(2))
	for at := begins; at < length; at += 40 {
		run(model.Step{Entries: []model.Entry{entry(2, at, min(40, length-at), length)}})
	}
	rows := 0
	for l := range c.Layers {
		rows += 1 + info.Rewind + (window-1)*(c.Layers-1-l)
	}
	require.Equal(t, rows, b.rows, "rows that were routed")
	RequireSame(t, want[length:], Feed(t, m, 2, length, ids[length:], Always(7)), "after a replay")

	// In the midst of one.
	at := begins + 30
	run(model.Step{Forks: []model.Fork{fork(3, length)}, Entries: []model.Entry{entry(3, begins, 30, length)}})
	for says, s := range map[string]model.Step{
		fmt.Sprintf("tokens at position %d up to %d; it is partial up to %d", at, length-1, length): {Entries: []model.Entry{entry(3, at, 1, length-1)}},
		"it runs tokens again up to":                           {Entries: []model.Entry{entry(3, at-1, 1, length)}},
		"is partial up to":                                     {Forks: []model.Fork{{Seq: 4, From: 3, Length: at}}},
		fmt.Sprintf("more than %d are necessary", info.Replay): {Forks: []model.Fork{fork(4, info.Replay)}},
		"which has": {Forks: []model.Fork{fork(4, length+81)}},
	} {
		require.ErrorContains(t, m.Prepare(s), says)
	}
	other := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 48})
	var whole, part, rest bytes.Buffer
	require.NoError(t, m.Snapshot(&whole, 3, ids[:at]))
	require.NoError(t, m.SnapshotFrom(&part, 3, ids[:at-20], 0))
	run(model.Step{Entries: []model.Entry{entry(3, at, 40, length)}})
	require.NoError(t, m.SnapshotFrom(&rest, 3, ids[:at+40], at-20))
	_, err = other.Restore(bytes.NewReader(claiming(t, whole.Bytes(), length, length+31)), 4)
	require.ErrorContains(t, err, fmt.Sprintf("a snapshot that runs %d tokens again; at most %d are possible", info.Replay+1, info.Replay))
	_, err = other.Restore(&whole, 5)
	require.NoError(t, err)
	_, err = other.RestoreFrom(&part, 6, nil)
	require.NoError(t, err)
	_, err = other.RestoreFrom(&rest, 6, ids[:at-20])
	require.NoError(t, err)
	for seq, from := range map[model.SeqID]int{5: at, 6: at + 40} {
		for from < length {
			n := min(48, length-from)
			s := model.Step{Entries: []model.Entry{entry(seq, from, n, length)}}
			_, err := other.Forward(t.Context(), s)
			require.NoError(t, err)
			other.Commit(s)
			from += n
		}
		RequireSame(t, want[length:], Feed(t, other, seq, length, ids[length:], Always(9)), fmt.Sprint("copy ", seq))
	}
}

// claiming is a snapshot whose header says that its sequence is partial, and runs tokens again,
// up to another length of as many digits.
func claiming(t *testing.T, data []byte, was, is int) []byte {
	data = slices.Clone(data)
	header := data[12 : 12+binary.LittleEndian.Uint32(data[8:])] // behind the magic and its length
	for _, name := range []string{"partial", "replayed"} {
		at := bytes.Index(header, fmt.Appendf(nil, `"%s":%d`, name, was))
		require.Positive(t, at, name)
		require.Len(t, fmt.Sprint(is), len(fmt.Sprint(was)))
		copy(header[at:], fmt.Sprintf(`"%s":%d`, name, is))
	}
	binary.LittleEndian.PutUint32(data[12+len(header):], crc32.Checksum(header, crc32.MakeTable(crc32.Castagnoli)))
	return data
}
