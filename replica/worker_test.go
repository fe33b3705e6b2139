package replica

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
	"ringmaster/parallel"
)

// alone is a worker in a group of one, driven by hand.
func alone(t *testing.T) (w *Worker, r *fakeRank, start func(epoch uint32)) {
	w = NewWorker(0, hostOf(func(s Settings, rank int) (Rank, error) {
		r = &fakeRank{Model: enginetest.NewModel(enginetest.Size, enginetest.Options{}), number: rank, flip: -1}
		return r, nil
	}))
	settings := encoded(t, Settings{Context: 10, MaxTokens: 10, Reduce: parallel.Exact, Placement: upTo(3)})
	require.NoError(t, w.Form(t.Context(), settings))
	t.Cleanup(func() {
		require.NoError(t, w.Close(context.Background()))
		require.Empty(t, r.Violations())
	})
	return w, r, func(epoch uint32) {
		e := cluster.Epoch{Number: epoch, Group: distributed.Local(), Done: t.Context()}
		require.NoError(t, w.Form(t.Context(), settings))
		require.NoError(t, w.Start(e))
	}
}

func TestWorkThatMakesNoSense(t *testing.T) {
	w, r, start := alone(t)
	do := func(p work) error {
		payload, err := p.encode()
		require.NoError(t, err)
		d, err := w.Work(payload)
		if err == nil {
			require.Len(t, d, 3)
		}
		return err
	}
	s := entry(1, 0, model.WantLast, 7)
	require.ErrorContains(t, do(work{step: s}), "before the epoch began")
	begin := func(epoch uint32, b beginning) {
		start(epoch)
		require.ErrorContains(t, do(work{step: s}), "before the work that begins the epoch")
		_, err := w.Work(b.encode())
		require.NoError(t, err)
	}
	for i := range beginningBytes {
		_, err := w.Work(beginning{lineage: 5}.encode()[:i])
		require.Error(t, err)
	}
	begin(1, beginning{lineage: 5})
	require.ErrorContains(t, do(work{committed: true, step: s}), "this rank ran none in this epoch")
	require.NoError(t, do(work{number: 1, step: s}))
	begin(2, beginning{lineage: 5}) // step 1 was interrupted
	require.ErrorContains(t, do(work{committed: true, step: s}), "this rank ran none in this epoch")
	require.NoError(t, do(work{number: 2, step: entry(2, 0, model.WantNone, 7)}))
	require.NoError(t, do(work{number: 3, committed: true, step: entry(2, 1, model.WantAll, 8, 9)}))
	require.Equal(t, map[model.SeqID][]int32{2: {7}}, r.Live())
	begin(3, beginning{lineage: 5, number: 3, committed: true})
	require.Equal(t, map[model.SeqID][]int32{2: {7, 8, 9}}, r.Live())
	require.NoError(t, do(work{number: 4, step: entry(2, 3, model.WantAll, 1)}))
	begin(4, beginning{lineage: 5, number: 4})
	require.Equal(t, map[model.SeqID][]int32{2: {7, 8, 9}}, r.Live(), "abandoned")

	// Only some tokens of step 5 are committed, by the next work or as an epoch begins.
	require.NoError(t, do(work{number: 5, step: entry(2, 3, model.WantAll, 1, 2, 3)}))
	require.NoError(t, do(work{number: 6, committed: true, kept: []int{2}, step: entry(2, 5, model.WantAll, 4, 5, 6)}))
	require.Equal(t, map[model.SeqID][]int32{2: {7, 8, 9, 1, 2}}, r.Live())
	begin(5, beginning{lineage: 5, number: 6, committed: true, kept: []int{1}})
	require.Equal(t, map[model.SeqID][]int32{2: {7, 8, 9, 1, 2, 4}}, r.Live())
	for what, kept := range map[string][]int{"4 of 3 tokens cannot be kept": {4}, "a step of 1 entries, but 2 numbers": {1, 1}} {
		require.NoError(t, do(work{number: 7, step: entry(2, 6, model.WantAll, 1, 2, 3)}))
		require.ErrorContains(t, do(work{number: 8, committed: true, kept: kept, step: s}), what)
	}
	require.NoError(t, do(work{number: 9, step: entry(2, 6, model.WantLast, 1, 2, 3)}))
	require.ErrorContains(t, do(work{number: 10, committed: true, kept: []int{2}, step: s}), "does not want all rows")

	_, err := w.Work([]byte("garbage of a peer"))
	require.ErrorContains(t, err, "format 103")
	require.NoError(t, w.resident.acquire(t.Context()))
	require.ErrorContains(t, do(work{step: s}), "formed or closed")
	w.resident.release()
}

// TestAModelThatWasReplaced: a step of a replaced model is not committed on its
// replacement; the rank then lacks the leader's sequences.
func TestAModelThatWasReplaced(t *testing.T) {
	w, _, start := alone(t)
	do := func(payload []byte) {
		_, err := w.Work(payload)
		require.NoError(t, err)
	}
	start(1)
	do(beginning{lineage: 5}.encode())
	payload, err := work{number: 1, step: entry(1, 0, model.WantLast, 7)}.encode()
	require.NoError(t, err)
	do(payload)
	other := encoded(t, Settings{Context: 20, MaxTokens: 10, Reduce: parallel.Exact, Placement: upTo(3)})
	require.NoError(t, w.Form(t.Context(), other))
	require.NoError(t, w.Start(cluster.Epoch{Number: 2, Group: distributed.Local(), Done: t.Context()}))
	do(beginning{lineage: 5, number: 1, committed: true}.encode())
	require.EqualValues(t, 2, w.state.loads)
	require.Zero(t, w.resident.rank.Len(1))
}

// TestAModelThatMeasured: measuring drops the sequences of a rank, which then lacks
// the leader's sequences.
func TestAModelThatMeasured(t *testing.T) {
	w, r, start := alone(t)
	start(1)
	_, err := w.Work(beginning{lineage: 5}.encode())
	require.NoError(t, err)
	require.EqualValues(t, 1, w.state.loads)
	w.resident.settings.Measure = true
	require.NoError(t, w.resident.chooseOn(t.Context(), distributed.Local()))
	require.NotEqual(t, state{lineage: 5, loads: w.resident.loads}, w.state, "it would pass for warm")
	start(2)
	_, err = w.Work(beginning{lineage: 5}.encode())
	require.NoError(t, err)
	require.Equal(t, state{lineage: 5, loads: w.resident.loads}, w.state)
	require.Empty(t, r.Live())
}

func TestAStartWithoutAForm(t *testing.T) {
	w := NewWorker(1, nil)
	require.ErrorContains(t, w.Start(cluster.Epoch{Done: t.Context()}), "before a model was formed")
	require.NoError(t, w.Close(t.Context()))
}

func TestFormSaysWhatIsWrong(t *testing.T) {
	w := NewWorker(1, nil)
	require.ErrorContains(t, w.Form(t.Context(), []byte(`{"context":1,"reduce":"sum"}`)), "context is 1")
}

func TestReportOfAnotherRank(t *testing.T) {
	w, _, start := alone(t)
	_, err := parseReport(w.Report(), 0, 2)
	require.NoError(t, err, "before the first epoch")
	start(4)
	require.NoError(t, w.resident.group.Barrier(t.Context()))
	raw := w.Report()
	r, err := parseReport(raw, 0, 2)
	require.NoError(t, err)
	require.EqualValues(t, 4, r.Epoch)
	require.EqualValues(t, 1, r.Group.Ops)
	_, err = parseReport(raw, 2, 2)
	require.ErrorContains(t, err, "report of rank 2 claims to be of rank 0")
	_, err = parseReport([]byte(`{"layers":7}`), 2, 2)
	require.ErrorContains(t, err, "report of rank 2")
	require.True(t, json.Valid(raw))
}
