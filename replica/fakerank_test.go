package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
	"ringmaster/model/snapshot"
	"ringmaster/parallel"
)

// fakeRank is a rank's model: that of enginetest, which checks each call
// against the rules, with an exchange in each step in place of a layer.
type fakeRank struct {
	*enginetest.Model
	settings Settings
	number   int
	inUse    atomic.Bool

	group     *distributed.Group
	placement parallel.Placement
	digest    []uint32
	joins     int
	restored  int // sequences, as a whole
	continued int // positions of others
	each      int // bytes of a position's state, 0: a sequence has fakeState
	big       int // bytes of a checkpoint's state

	// Fields that a test may change before a step.
	onPrepare func(model.Step) error
	onExamine func(model.Piece) error
	onForward func(context.Context, model.Step) error
	// onRestoreFrom may refuse a sequence.
	onRestoreFrom func(model.SeqID) error
	hook          *hook
	flip          int // position of the digest that is wrong, -1 for none
	// overflows is its count of exchanges repeated in float32.
	overflows uint64

	rows     [][]float32  // the logits of the last step, until Join
	wants    []model.Want // of all entries run
	prepared []model.Step // the steps of all Prepare
}

// hook is a rank's onForward that tests change while steps run. It outlives the rank's model.
type hook struct {
	atomic.Pointer[func(context.Context, model.Step) error]
}

// run calls the hook if there is one.
func (h *hook) run(ctx context.Context, s model.Step) error {
	if h == nil {
		return nil
	}
	if do := h.Load(); do != nil {
		return (*do)(ctx, s)
	}
	return nil
}

// alone panics when two goroutines use a rank at the same time.
func (r *fakeRank) alone() func() {
	if !r.inUse.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("rank %d is used by two goroutines", r.number))
	}
	return func() { r.inUse.Store(false) }
}

func (r *fakeRank) JoinStage(g, _ *distributed.Group, p parallel.Placement) error {
	return r.Join(g, p)
}

func (r *fakeRank) Join(g *distributed.Group, p parallel.Placement) error {
	defer r.alone()()
	for _, row := range r.rows { // as memory that is freed
		for i := range row {
			row[i] = float32(math.NaN())
		}
	}
	r.group, r.placement, r.rows = g, p, nil
	r.joins++
	return nil
}

func (r *fakeRank) HoldWeights() error { return nil }

func (r *fakeRank) Help(step model.Step) []int { return nil }

func (r *fakeRank) Settle() error { return nil }

func (r *fakeRank) Forget() {
	defer r.alone()()
	r.Model.Forget()
}

func (r *fakeRank) Drop(id model.SeqID) {
	defer r.alone()()
	r.Model.Drop(id)
}

func (r *fakeRank) Snapshot(w io.Writer, id model.SeqID, tokens []int32) error {
	done := r.alone()
	have := r.Live()[id]
	done() // it is written in pieces between steps
	if !slices.Equal(have, tokens) {
		return fmt.Errorf("sequence %d is %v, not %v", id, have, tokens)
	}
	return r.write(w, id, tokens, 0, fakeState)
}

// write writes a snapshot with that many bytes and the checkpoints behind from.
func (r *fakeRank) write(w io.Writer, id model.SeqID, tokens []int32, from, state int) error {
	h := snapshot.Header{Model: "fake", Layout: "fake", Length: len(tokens), Peak: len(tokens), From: from, Checkpoints: between(r.Checkpoints(id), from, len(tokens))}
	return snapshot.Write(w, h, tokens, r.sections(state, h.Checkpoints))
}

// sections returns those of a snapshot with checkpoints at these lengths.
func (r *fakeRank) sections(state int, at []int) []snapshot.Section {
	all := []snapshot.Section{{Name: "nothing", Parts: [][]byte{make([]byte, state)}}}
	for _, n := range at {
		all = append(all, snapshot.Section{Name: fmt.Sprint("checkpoint ", n), Parts: [][]byte{make([]byte, r.big)}})
	}
	return all
}

// read reads the sections of a snapshot.
func (r *fakeRank) read(x *snapshot.Reader, state int) error {
	if !slices.Equal(x.Checkpoints, between(x.Checkpoints, x.From, x.Length)) {
		return fmt.Errorf("checkpoints at %d in a snapshot of positions %d to %d", x.Checkpoints, x.From, x.Length)
	}
	for _, s := range r.sections(state, x.Checkpoints) {
		if err := x.Section(s); err != nil {
			return err
		}
	}
	return nil
}

// between returns the lengths of checkpoints beyond from, up to to.
func between(at []int, from, to int) (some []int) {
	for _, n := range at {
		if n > from && n <= to {
			some = append(some, n)
		}
	}
	return some
}

// Checkpoints returns the lengths of the committed checkpoints of a sequence.
func (r *fakeRank) Checkpoints(id model.SeqID) []int { return r.Model.Checkpoints()[id] }

// fakeState is the number of bytes of a sequence's state, which are
// meaningless.
const fakeState = 3 << 19

func (r *fakeRank) Restore(in io.Reader, id model.SeqID) (tokens []int32, err error) {
	// Read in pieces, between steps.
	x, err := snapshot.Read(in, "fake", "fake", r.settings.Context)
	if err != nil {
		return nil, err
	}
	if err := r.read(x, r.state(x.From, x.Length)); err != nil {
		return nil, err
	}
	tokens = x.Tokens
	defer r.alone()()
	r.restored++
	r.Model.Restore(id, tokens, x.Checkpoints...)
	return tokens, nil
}

// state returns the bytes of the state in a snapshot of these positions.
func (r *fakeRank) state(from, to int) int {
	if from == 0 && r.each == 0 {
		return fakeState
	}
	return r.each * (to - from)
}

// held returns the bytes of all sequences.
func (r *fakeRank) held() (n int64) {
	for id, tokens := range r.Live() {
		n += r.SequenceBytes(len(tokens)) + r.CheckpointBytes()*int64(len(r.Checkpoints(id)))
	}
	return n
}

func (r *fakeRank) KeepCheckpoints(id model.SeqID, at []int) {
	kept := slices.DeleteFunc(r.Checkpoints(id), func(n int) bool { return !slices.Contains(at, n) })
	if tokens, ok := r.Live()[id]; ok {
		r.Model.Extend(id, tokens, kept...)
	}
}

// SnapshotFrom has a section of each bytes for every position.
func (r *fakeRank) SnapshotFrom(w io.Writer, id model.SeqID, tokens []int32, from int) error {
	done := r.alone()
	have := r.Live()[id]
	done() // it may be written in pieces between steps
	if len(have) < len(tokens) || !slices.Equal(have[:len(tokens)], tokens) {
		return fmt.Errorf("sequence %d is %v, not %v", id, have, tokens)
	}
	return r.write(w, id, tokens, from, r.state(from, len(tokens)))
}

func (r *fakeRank) RestoreFrom(in io.Reader, id model.SeqID, before []int32) ([]int32, error) {
	if r.onRestoreFrom != nil {
		if err := r.onRestoreFrom(id); err != nil {
			return nil, err
		}
	}
	x, err := snapshot.ReadOn(in, "fake", "fake", r.settings.Context, before)
	if err != nil {
		return nil, err
	}
	if err := r.read(x, r.state(x.From, x.Length)); err != nil {
		return nil, err
	}
	defer r.alone()()
	if x.From > len(r.Live()[id]) {
		return nil, fmt.Errorf("sequence %d has %d positions, not %d", id, len(r.Live()[id]), x.From)
	}
	r.continued += x.Length - x.From
	r.Model.Extend(id, x.Tokens, append(between(r.Checkpoints(id), 0, x.From), x.Checkpoints...)...)
	if held, budget := r.held(), r.SequenceBudget(); budget > 0 && held > budget {
		return nil, &model.MemoryError{Seq: id, Need: held, Have: budget}
	}
	return x.Tokens, nil
}

func (r *fakeRank) StateBytes(id model.SeqID, from, length int) int64 {
	return int64(r.each)*int64(length-from) + int64(r.big)*int64(len(between(r.Checkpoints(id), from, length)))
}

func (r *fakeRank) Prepare(s model.Step) error {
	defer r.alone()()
	r.prepared = append(r.prepared, s)
	if r.onPrepare != nil {
		return r.onPrepare(s)
	}
	return nil
}

func (r *fakeRank) Run(ctx context.Context) ([][]float32, error) {
	defer r.alone()()
	s := r.prepared[len(r.prepared)-1]
	for _, e := range s.Entries {
		r.wants = append(r.wants, e.Want)
	}
	if r.onForward != nil {
		if err := r.onForward(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := r.hook.run(ctx, s); err != nil {
		return nil, err
	}
	rows, err := r.Model.Forward(ctx, s)
	if err != nil {
		return nil, err
	}
	text, _ := json.Marshal(withoutWant(s))
	sum := crc32.ChecksumIEEE(text)
	r.digest = []uint32{sum, sum + 1, sum + 2} // two layers and the end
	if r.flip >= 0 {
		r.digest[r.flip]++
	}
	r.rows = rows
	return rows, r.exchange(ctx)
}

// exchange gathers rank+1 bytes of each rank, so that the ranks send different
// data.
func (r *fakeRank) exchange(ctx context.Context) error {
	if r.placement.Staged() {
		return nil // only messages between stages, whose senders run ahead
	}
	sizes, total := make([]int, r.group.Size()), 0
	for i := range sizes {
		sizes[i] = i + 1
		total += i + 1
	}
	return r.group.AllGatherV(ctx, make([]byte, total), sizes)
}

func (r *fakeRank) Commit(s model.Step) {
	defer r.alone()()
	r.Model.Commit(s)
}

func (r *fakeRank) Extent() model.Extent {
	return model.Extent{Layers: []int{0, 1}, Experts: r.placement.Sizes().Experts, Blocks: 3}
}

// Examine returns a sum for each number of the piece.
func (r *fakeRank) Examine(p model.Piece) (sums []model.Sum, err error) {
	defer r.alone()()
	if r.onExamine != nil {
		return nil, r.onExamine(p)
	}
	for i := p.From; i < p.To; i++ {
		sums = append(sums, model.Sum{Name: "w", Layer: p.Layer, Expert: i, Weights: uint32(i), Result: uint32(p.Seed)})
	}
	return sums, nil
}

func (r *fakeRank) Digest() []uint32 { return r.digest }

func (r *fakeRank) LayerStats() []parallel.LayerStats {
	n := uint64(len(r.Steps()))
	return []parallel.LayerStats{{Compute: time.Second, Exchanges: n}, {Compute: time.Minute, Exchanges: n, Sent: uint64(r.number), Overflows: r.overflows}}
}

func (r *fakeRank) Exchanges() [][]parallel.Exchange {
	return [][]parallel.Exchange{{{Purpose: "experts", Op: parallel.AllReduce.String(), Count: uint64(len(r.Steps())), Wire: time.Second}}}
}

// withoutWant returns a step without the Want of its entries, as it is after a payload.
func withoutWant(s model.Step) model.Step {
	s.Checkpoints = slices.Clone(s.Checkpoints)
	for i, c := range s.Checkpoints {
		s.Checkpoints[i].At = append([]int{}, c.At...)
	}
	s.Entries = slices.Clone(s.Entries)
	for i := range s.Entries {
		s.Entries[i].Want = model.WantNone
	}
	return s
}

// upTo returns a placement in which the experts of each rank end at the given
// numbers.
func upTo(ends ...int) parallel.Placement {
	p, at := make(parallel.Placement, len(ends)), 0
	for r, end := range ends {
		p[r] = parallel.Part{Experts: parallel.Range{Start: at, End: end}, Weight: 1}
		at = end
	}
	return p
}
