package decoder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ringmaster/model"
)

// The bounds of a step of a block, for its buffers, and of its work.
const (
	blockRows   = 128 // most rows
	draftedRows = 16  // most rows with logits
	mostDrafts  = 16  // most guesses of a sequence at once, less than deepseek4 can be rewound by
	// unasked is after how many steps with logits and without a call of Draft the block follows
	// no sequence any more, because each of its rows takes time. The next call starts it again.
	unasked = 1024
)

// drafter runs the block for multi-token prediction of a model, beside the model. It
// learns what is committed and gives the block a row for each position, from the hidden
// states that the model's last step has left in its buffers: the rows of a committed step
// must be followed before the next step runs. The block's positions begin at 0 wherever
// it starts to follow a sequence, because rotations are relative. Whatever happens here,
// such as lack of memory, changes no logits of the model.
type drafter[C Cache] struct {
	trunk    Network[C]
	block    *Model[C]
	pass     Block[C]
	width    int // of a hidden state
	of       map[model.SeqID]*followed
	pending  []committed
	batch    []model.Entry // of rows to fill, with their inputs in the block's buffer
	batched  int           // rows of it
	failed   error         // of the block, until Draft returns it
	waited   int           // steps with logits since the last Draft
	sequence int64         // bytes of a followed state
}

// followed is a sequence that the block follows. The block has a row for each position in
// [first, at), and one for at if fed is not negative.
type followed struct {
	first int       // position of the block's row 0
	at    int       // the last committed position
	last  []float32 // its hidden state, nil if it is not known: then it has a row
	fed   int32     // token with which it has a row, negative for none
}

// committed is an entry of a committed step that the block has not followed yet.
type committed struct {
	seq    model.SeqID
	pos    int
	row    int // of the first token, in the model's last step
	tokens []int32
	known  int // the first token from which on this rank has all hidden states
}

// newDrafter makes the drafter of a model. Free frees the block.
func newDrafter[C Cache](trunk Network[C], block *Model[C], pass Block[C], width int) *drafter[C] {
	return &drafter[C]{trunk: trunk, block: block, pass: pass, width: width, of: map[model.SeqID]*followed{}, sequence: stateBytes(width)}
}

// stateBytes is the memory of followed.last.
func stateBytes(width int) int64 { return Pages(4 * int64(width)) }

// bytes is the memory of a sequence of a length, at most.
func (d *drafter[C]) bytes(length int) int64 {
	if length <= 0 {
		return 0
	}
	return d.block.SequenceBytes(length) + d.sequence
}

// note notes the entries of a committed step. ran is the step as it ran, perhaps with
// more tokens in its entries.
func (d *drafter[C]) note(ran *Step[C], s model.Step) {
	if d.waited > unasked {
		return
	}
	if slices.ContainsFunc(s.Entries, func(e model.Entry) bool { return e.Want != model.WantNone }) {
		d.waited++
	}
	if d.waited > unasked {
		d.pending = d.pending[:0]
		clear(d.of)
		d.block.Forget()
		return
	}
	for i, e := range s.Entries {
		if ran == nil || i >= len(ran.Segments) || ran.Segments[i].Pos != e.Pos || ran.Segments[i].N < len(e.Tokens) {
			d.forget(e.Seq) // not what ran last
			continue
		}
		g := ran.Segments[i]
		d.pending = append(d.pending, committed{e.Seq, e.Pos, g.First, slices.Clone(e.Tokens), ran.known(g.First, len(e.Tokens))})
	}
}

// known is the number of the first of n rows from which on this rank has the hidden
// states of all.
func (s *Step[C]) known(first, n int) int {
	if s.Cut == nil {
		return 0
	}
	for ; n > 0; n-- {
		row := first + n - 1
		if _, kept := slices.BinarySearch(s.Kept, int32(row)); !kept && (row < s.Own.Start || row >= s.Own.End) {
			break
		}
	}
	return n
}

// fork makes the block follow a fork as it follows the sequence from which it comes.
func (d *drafter[C]) fork(f model.Fork) {
	q := d.of[f.From]
	if q == nil || f.Length <= q.first {
		return
	}
	made := &followed{first: q.first, at: f.Length - 1, fed: -1}
	rows := f.Length - q.first
	if f.Length == q.at+1 {
		if q.last == nil {
			return
		}
		made.last = slices.Clone(q.last)
		rows--
	}
	if rows > 0 {
		step := model.Step{Forks: []model.Fork{{Seq: f.Seq, From: f.From, Length: rows}}}
		if d.block.Prepare(step) != nil { // too far back, or out of memory
			return
		}
		if _, err := d.block.Run(context.Background()); err != nil {
			d.fail(context.Background(), err)
			return
		}
		d.block.Commit(step)
	}
	d.of[f.Seq] = made
}

// follow brings the block up to what is committed.
func (d *drafter[C]) follow(ctx context.Context) {
	for _, p := range d.pending {
		d.followEntry(ctx, p)
	}
	d.fill(ctx)
	d.pending = d.pending[:0]
}

func (d *drafter[C]) followEntry(ctx context.Context, p committed) {
	q, n := d.of[p.seq], len(p.tokens)
	first := p.known
	if reach := d.pass.Reach(); reach > 0 {
		first = max(first, n-reach) // no later row attends to one before
	}
	if q != nil && (first > 0 || !d.continues(p.seq, q, p.pos)) {
		d.drop(p.seq)
		q = nil
	}
	switch {
	case q == nil:
		q = &followed{first: p.pos + first}
		d.of[p.seq] = q
	case p.pos == q.at+1 && q.last != nil && q.fed != p.tokens[0]:
		d.add(ctx, p.seq, q, q.at-q.first, p.tokens[0], q.last)
	}
	for i := first; i < n-1; i++ {
		hidden, err := d.block.readable(d.trunk.Hidden(p.row + i))
		if err != nil {
			d.fail(ctx, err)
			return
		}
		d.add(ctx, p.seq, q, p.pos+i-q.first, p.tokens[i+1], hidden)
	}
	hidden, err := d.block.readable(d.trunk.Hidden(p.row + n - 1))
	if err != nil {
		d.fail(ctx, err)
		return
	}
	if q.last == nil {
		q.last = make([]float32, d.width)
	}
	copy(q.last, hidden)
	q.at, q.fed = p.pos+n-1, -1
}

// continues reports whether the block can follow a sequence from a position on, perhaps
// after a rewind. The row before it then continues to stand for the token that the rewind
// has replaced.
func (d *drafter[C]) continues(id model.SeqID, q *followed, pos int) bool {
	if pos > q.at+1 || pos < q.first {
		return false
	}
	is, at := d.block.standing(id), min(pos, q.at)-q.first
	return at == 0 || is.peak-at <= d.block.o.Info.Rewind
}

// add adds a row of a followed sequence to the batch. After an error the sequence is no
// longer followed, and the rows that it still has are left out: the block lacks those before.
func (d *drafter[C]) add(ctx context.Context, id model.SeqID, q *followed, pos int, token int32, hidden []float32) {
	if d.batched == d.block.o.Info.MaxTokens {
		d.fill(ctx)
	}
	if d.of[id] != q {
		return
	}
	copy(d.pass.Input(d.batched, false), hidden)
	d.batched++
	if n := len(d.batch); n > 0 && d.batch[n-1].Seq == id {
		d.batch[n-1].Tokens = append(d.batch[n-1].Tokens, token)
		return
	}
	d.batch = append(d.batch, model.Entry{Seq: id, Pos: pos, Tokens: []int32{token}})
}

// fill runs the batch.
func (d *drafter[C]) fill(ctx context.Context) {
	if d.batched > 0 {
		d.run(ctx, model.Step{Entries: d.batch})
	}
	d.batch, d.batched = d.batch[:0], 0
}

// run runs a step of the block and commits it. It returns nothing after an error.
func (d *drafter[C]) run(ctx context.Context, step model.Step) [][]float32 {
	logits, err := d.block.Forward(ctx, step)
	if err != nil {
		d.fail(ctx, err)
		return nil
	}
	d.block.Commit(step)
	return logits
}

// fail forgets all sequences, so that the block starts to follow them again. Lack of memory
// and the end of a context cost guesses and are no failure of the block.
func (d *drafter[C]) fail(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, model.ErrNoMemory) {
		d.failed = fmt.Errorf("the block for multi-token prediction: %w", err)
	}
	clear(d.of)
	d.block.Forget()
}

// forget ends what is known of a sequence.
func (d *drafter[C]) forget(id model.SeqID) {
	d.drop(id)
	d.pending = slices.DeleteFunc(d.pending, func(p committed) bool { return p.seq == id })
}

func (d *drafter[C]) drop(id model.SeqID) {
	delete(d.of, id)
	d.block.Drop(id)
}

// Draft implements model.Drafter. Without a block it guesses nothing.
func (m *Model[C]) Draft(ctx context.Context, entries []model.DraftEntry, pick model.Pick) ([][]int32, error) {
	out := make([][]int32, len(entries))
	d := m.drafter
	if d == nil {
		return out, nil
	}
	d.waited = 0
	d.follow(ctx)
	for first := 0; first < len(entries); first += draftedRows {
		end := min(first+draftedRows, len(entries))
		d.chain(ctx, entries[first:end], out[first:end], func(i, depth int, logits []float32) (int32, bool) { return pick(first+i, depth, logits) })
	}
	err := d.failed
	d.failed = nil
	return out, err
}

// chain drafts for a few sequences. The first row of each continues the state of its last
// position and stays; those behind it continue states of the block, and the next rows of
// the sequence replace them.
func (d *drafter[C]) chain(ctx context.Context, entries []model.DraftEntry, out [][]int32, pick model.Pick) {
	var active []int // entries that have a row in the next step
	for i, e := range entries {
		if q := d.of[e.Seq]; q != nil && q.last != nil && e.Most > 0 {
			copy(d.pass.Input(len(active), false), q.last)
			active = append(active, i)
		}
	}
	for depth := 0; len(active) > 0; depth++ {
		var step model.Step
		for _, i := range active {
			q, token := d.of[entries[i].Seq], entries[i].Token
			if depth > 0 {
				token = out[i][depth-1]
			}
			step.Entries = append(step.Entries, model.Entry{Seq: entries[i].Seq, Pos: q.at - q.first + depth, Tokens: []int32{token}, Want: model.WantLast})
		}
		logits := d.run(ctx, step)
		if logits == nil {
			return
		}
		var next []int
		for row, i := range active {
			q := d.of[entries[i].Seq]
			if depth == 0 {
				q.fed = entries[i].Token
			}
			id, more := pick(i, depth, logits[row])
			out[i] = append(out[i], id)
			if more && depth+1 < min(entries[i].Most, mostDrafts) && q.at-q.first+depth+1 < d.block.o.Info.ContextLength {
				hidden, err := d.block.readable(d.pass.Hidden(row))
				if err != nil {
					d.fail(ctx, err)
					return
				}
				copy(d.pass.Input(len(next), true), hidden)
				next = append(next, i)
			}
		}
		active = next
	}
}
