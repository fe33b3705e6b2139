package enginetest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
	"ringmaster/model/snapshot"
)

// checkpoints is a step with checkpoints of one sequence.
func checkpoints(seq model.SeqID, at ...int) model.Step {
	return model.Step{Checkpoints: []model.Checkpoints{{Seq: seq, At: at}}}
}

// forked makes a sequence a fork in a step.
func forked(s model.Step, seq, from model.SeqID, length int) model.Step {
	s.Forks = append(s.Forks, model.Fork{Seq: seq, From: from, Length: length})
	return s
}

// withCheckpoint returns a model with sequence 1 of tokens 1 to 6, a checkpoint at 2 and
// a rewind of 1.
func withCheckpoint(t *testing.T, o Options) *Model {
	m := NewModel(50, o)
	mustRun(t, m, entry(1, 0, model.WantNone, 1, 2))
	s := entry(1, 2, model.WantNone, 3, 4, 5, 6)
	s.Checkpoints = checkpoints(1, 2).Checkpoints
	mustRun(t, m, s)
	require.Equal(t, map[model.SeqID][]int{1: {2}}, m.Checkpoints())
	return m
}

// TestForksHaveTheLogitsOfTheirTokens: a fork from within the rewind, from a checkpoint
// and from one of the same step has the logits of a sequence that ran all its tokens.
func TestForksHaveTheLogitsOfTheirTokens(t *testing.T) {
	whole := mustRun(t, NewModel(50, Options{}), entry(9, 0, model.WantAll, 1, 2, 3, 4, 5, 6, 7))
	for length, s := range map[int]model.Step{
		2: entry(2, 2, model.WantAll, 3, 4, 5, 6, 7),
		5: entry(2, 5, model.WantAll, 6, 7),
		6: entry(2, 6, model.WantAll, 7),
	} {
		m := withCheckpoint(t, Options{})
		if length == 5 { // the step takes the checkpoint that the fork inherits
			s.Checkpoints = checkpoints(1, 2, 5).Checkpoints
		}
		rows := mustRun(t, m, forked(s, 2, 1, length))
		require.Equal(t, whole[length:], rows, "a fork of %d tokens", length)
		require.Equal(t, m.Checkpoints()[1], m.Checkpoints()[2])
		require.Equal(t, Work{Tokens: 6 + 7 - length, Forks: 1}, m.Work())
		again := mustRun(t, m, entry(1, 6, model.WantLast, 7))
		require.Equal(t, whole[6], again[0], "the other sequence stays as it is")
		require.Empty(t, m.Violations())
	}
}

// TestForksOutliveTheirOrigin: a step may drop the sequence that it forks, and the fork
// has the checkpoints up to its length.
func TestForksOutliveTheirOrigin(t *testing.T) {
	m := withCheckpoint(t, Options{})
	s := checkpoints(1, 2, 5, 6)
	mustRun(t, m, s)
	mustRun(t, m, forked(model.Step{Drop: []model.SeqID{1}}, 2, 1, 5))
	require.Equal(t, map[model.SeqID][]int{2: {2, 5}}, m.Checkpoints())
	require.Equal(t, map[model.SeqID][]int32{2: {1, 2, 3, 4, 5}}, m.Live())
	mustRun(t, m, forked(model.Step{}, 3, 2, 2))
	require.Equal(t, map[model.SeqID][]int{2: {2, 5}, 3: {2}}, m.Checkpoints())
	require.Empty(t, m.Violations())
}

// TestRewindsFreeCheckpoints also of a fork that is rewound.
func TestRewindsFreeCheckpoints(t *testing.T) {
	m := withCheckpoint(t, Options{})
	mustRun(t, m, checkpoints(1, 2, 5, 6))
	mustRun(t, m, forked(entry(2, 5, model.WantNone, 9), 2, 1, 6))
	require.Equal(t, []int{2, 5}, m.Checkpoints()[2], "rewound to 5")
	require.Equal(t, []int{2, 5, 6}, m.Checkpoints()[1])
	mustRun(t, m, checkpoints(1, 6))
	require.Equal(t, []int{6}, m.Checkpoints()[1], "the others are not listed any more")
	mustRun(t, m, entry(1, 0, model.WantNone, 1))
	require.Empty(t, m.Checkpoints()[1], "begun again")
	require.Empty(t, m.Violations())
}

func TestForkRules(t *testing.T) {
	for name, s := range map[string]model.Step{
		"fork of an unknown sequence":       forked(model.Step{}, 7, 6, 1),
		"fork of a dropped sequence":        forked(model.Step{}, 7, 3, 1),
		"fork of a fork of the step":        forked(forked(model.Step{}, 7, 1, 6), 8, 7, 6),
		"neither in rewind nor checkpoint":  forked(model.Step{}, 7, 1, 4),
		"checkpoint that the step frees":    forked(checkpoints(1, 5), 7, 1, 2),
		"longer than its origin":            forked(model.Step{}, 7, 1, 7),
		"no tokens":                         forked(model.Step{}, 7, 1, 0),
		"negative length":                   forked(model.Step{}, 7, 1, -1),
		"an id that exists":                 forked(model.Step{}, 4, 1, 6),
		"an id that was dropped":            forked(model.Step{}, 3, 1, 6),
		"an id that the step drops":         forked(model.Step{Drop: []model.SeqID{4}}, 4, 1, 6),
		"an id twice":                       forked(forked(model.Step{}, 7, 1, 6), 7, 1, 5),
		"entry beyond the fork":             forked(entry(7, 6, model.WantNone, 1), 7, 1, 5),
		"entry at 0 of a fork":              forked(entry(7, 0, model.WantNone, 1), 7, 1, 6),
		"entry rewinds a fork too far":      forked(entry(7, 4, model.WantNone, 1), 7, 1, 6),
		"entry rewinds past the checkpoint": forked(entry(7, 1, model.WantNone, 1), 7, 1, 2),
		"two entries of a fork":             forked(model.Step{Entries: append(entry(7, 6, model.WantNone, 1).Entries, entry(7, 7, model.WantNone, 1).Entries...)}, 7, 1, 6),
		"checkpoint out of the rewind":      checkpoints(1, 2, 4),
		"checkpoint beyond the length":      checkpoints(1, 2, 7),
		"checkpoint at 0":                   checkpoints(1, 0),
		"descending":                        checkpoints(1, 6, 5),
		"twice the same":                    checkpoints(1, 5, 5),
		"named twice":                       {Checkpoints: append(checkpoints(1, 5).Checkpoints, checkpoints(1, 6).Checkpoints...)},
		"checkpoint of an unknown sequence": checkpoints(6, 1),
		"checkpoint of a new sequence":      {Checkpoints: checkpoints(7, 1).Checkpoints, Entries: entry(7, 0, model.WantNone, 1).Entries},
		"checkpoint of a fork of the step":  {Checkpoints: checkpoints(7, 6).Checkpoints, Forks: forked(model.Step{}, 7, 1, 6).Forks},
		"checkpoint of a dropped sequence":  checkpoints(3, 1),
		"checkpoint of what the step drops": {Drop: []model.SeqID{1}, Checkpoints: checkpoints(1, 2).Checkpoints},
	} {
		m := withCheckpoint(t, Options{})
		mustRun(t, m, entry(3, 0, model.WantNone, 1))
		mustRun(t, m, entry(4, 0, model.WantNone, 1))
		mustRun(t, m, model.Step{Drop: []model.SeqID{3}})
		before := m.Live()
		_, err := m.Forward(context.Background(), s)
		require.Error(t, err, name)
		require.Len(t, m.Violations(), 1, name)
		require.Equal(t, before, m.Live(), name)
		require.Equal(t, map[model.SeqID][]int{1: {2}}, m.Checkpoints(), name)
	}
}

// TestAForkCannotBeRewoundBelowItsCheckpoint, but within it once it has grown.
func TestAForkCannotBeRewoundBelowItsCheckpoint(t *testing.T) {
	m := withCheckpoint(t, Options{Rewind: 3})
	mustRun(t, m, entry(1, 6, model.WantNone, 7, 8))
	mustRun(t, m, forked(model.Step{}, 2, 1, 2))
	_, err := m.Forward(t.Context(), entry(2, 1, model.WantNone, 9))
	require.ErrorContains(t, err, "rewound from 5 to 1, at most 3 is allowed")
	mustRun(t, m, entry(2, 2, model.WantNone, 9, 9, 9, 9))
	mustRun(t, m, entry(2, 3, model.WantNone, 8))
	require.Equal(t, []int32{1, 2, 9, 8}, m.Live()[2])
}

// TestAnyRewindNeedsNoCheckpoints: a model that can be rewound to any length forks
// anywhere.
func TestAnyRewindNeedsNoCheckpoints(t *testing.T) {
	m := NewModel(50, Options{Rewind: 4096})
	mustRun(t, m, entry(1, 0, model.WantNone, 1, 2, 3))
	mustRun(t, m, forked(forked(model.Step{}, 2, 1, 1), 3, 1, 3))
	mustRun(t, m, checkpoints(3, 1, 2))
	require.Empty(t, m.Violations())
}

// TestUncommittedForks: without a Commit, forks and checkpoints have no effect, and the
// same or another step may follow.
func TestUncommittedForks(t *testing.T) {
	m := withCheckpoint(t, Options{})
	before := m.Live()
	s := forked(entry(2, 5, model.WantLast, 9), 2, 1, 5)
	s.Checkpoints = checkpoints(1, 2, 5).Checkpoints
	first, err := m.Forward(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, before, m.Live())
	require.Equal(t, map[model.SeqID][]int{1: {2}}, m.Checkpoints())
	require.Zero(t, m.Len(2))
	require.Equal(t, 2, m.Known(), "it may hold memory")

	mustRun(t, m, model.Step{}) // another
	_, err = m.Forward(t.Context(), forked(model.Step{}, 3, 1, 2))
	require.NoError(t, err)
	require.Zero(t, m.Work().Forks)
	require.Equal(t, first, mustRun(t, m, s), "the same again")
	require.Equal(t, 1, m.Work().Forks)
	require.Equal(t, map[model.SeqID][]int{1: {2, 5}, 2: {2, 5}}, m.Checkpoints())
	require.Empty(t, m.Violations())
	mustRun(t, m, model.Step{Drop: []model.SeqID{3}})
	require.Equal(t, 2, m.Known())
}

// TestForksTakeMemory: a fork counts with its length and its checkpoints, before its
// Commit too; a checkpoint that is freed counts until the Commit.
func TestForksTakeMemory(t *testing.T) {
	// Sequence 1 has 10+8 bytes and a checkpoint of 100, a fork of it 10+4 and 100.
	for budget, fits := range map[int64]bool{231: false, 232: true} {
		m := withCheckpoint(t, Options{SequenceBudget: budget, CheckpointBytes: 100})
		require.EqualValues(t, 100, m.CheckpointBytes())
		_, err := m.Forward(t.Context(), forked(model.Step{}, 2, 1, 2))
		require.Equal(t, fits, err == nil, "%v", err)
		require.Equal(t, fits, len(m.Violations()) == 0)
	}
	m := withCheckpoint(t, Options{SequenceBudget: 118, CheckpointBytes: 100})
	_, err := m.Forward(t.Context(), checkpoints(1, 6))
	require.ErrorContains(t, err, "218 of 118 bytes", "the one at 2 is freed at the commit")
	mustRun(t, m, checkpoints(1))
	mustRun(t, m, checkpoints(1, 6))
	m.SetSequenceBudget(117)
	_, err = m.Forward(t.Context(), model.Step{})
	require.ErrorContains(t, err, "118 of 117 bytes")

	m = withCheckpoint(t, Options{MemoryLimit: 9})
	var full *model.MemoryError
	_, err = m.Forward(t.Context(), forked(entry(2, 2, model.WantNone, 1, 2), 2, 1, 2))
	require.True(t, errors.As(err, &full) && full.Seq == 2, "%v", err)
	_, err = m.Forward(t.Context(), forked(forked(model.Step{}, 2, 1, 2), 3, 1, 2))
	require.True(t, errors.As(err, &full) && full.Seq == 3, "%v", err)
	mustRun(t, m, forked(entry(2, 2, model.WantNone, 1), 2, 1, 2))
	require.Empty(t, m.Violations())
}

// TestForksOfLostSequences: a step that was planned before a loss and uses what was lost
// is ErrUnavailable, no mistake; an id that a lost step named is never used again.
func TestForksOfLostSequences(t *testing.T) {
	m := withCheckpoint(t, Options{})
	_, err := m.Forward(t.Context(), forked(model.Step{}, 2, 1, 2))
	require.NoError(t, err)
	m.Lose(errors.New("rank 1 left"))
	m.Return()
	for _, s := range []model.Step{
		forked(model.Step{}, 3, 1, 2),
		forked(entry(3, 2, model.WantLast, 9), 3, 1, 2),
		checkpoints(1, 2),
		forked(model.Step{}, 3, 2, 2),
	} {
		_, err := m.Forward(t.Context(), s)
		require.ErrorIs(t, err, model.ErrUnavailable)
		require.ErrorContains(t, err, "rank 1 left")
	}
	require.Empty(t, m.Violations())
	require.Zero(t, m.Known())
	mustRun(t, m, entry(4, 0, model.WantNone, 1))
	_, err = m.Forward(t.Context(), forked(entry(2, 1, model.WantLast, 9), 2, 4, 1))
	require.ErrorContains(t, err, "it was lost")
	require.Len(t, m.Violations(), 1)
}

// TestSnapshotsHaveCheckpoints: what is exported and imported has the checkpoints and the
// greatest length that it had.
func TestSnapshotsHaveCheckpoints(t *testing.T) {
	m := withCheckpoint(t, Options{CheckpointBytes: 100, SequenceBudget: 1000})
	mustRun(t, m, forked(model.Step{}, 2, 1, 2))
	for id, tokens := range m.Live() {
		to := NewModel(50, Options{CheckpointBytes: 100, SequenceBudget: 110})
		out, in := m.Export(id, tokens, 0), to.Import(id)
		for {
			piece, err := out.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			_, err = in.Write(piece)
			require.NoError(t, err)
		}
		_, err := to.Forward(t.Context(), model.Step{})
		require.ErrorContains(t, err, "bytes", "the checkpoint counts when the header has been read")
		got, err := in.Close()
		require.NoError(t, err)
		require.Equal(t, tokens, got)
		require.Equal(t, m.Checkpoints()[id], to.Checkpoints()[id])
		to.SetSequenceBudget(0)
		mustRun(t, to, forked(entry(7, 2, model.WantNone, 3), 7, id, 2))
		_, err = to.Forward(t.Context(), entry(id, 1, model.WantNone, 3))
		require.ErrorContains(t, err, "rewound", "it has the greatest length")
	}
	require.Empty(t, m.Violations())
	m.Restore(8, []int32{1, 2, 3}, 1, 3)
	m.Extend(8, []int32{1, 2, 3, 4}, 1)
	require.Equal(t, []int{1}, m.Checkpoints()[8])
}

// TestForksBeginAnswers: a fork that continues with the token that its origin was to say
// begins an answer of its own.
func TestForksBeginAnswers(t *testing.T) {
	m := Script("no")
	mustRun(t, m, entry(1, 0, model.WantLast, 'h', 'i'))
	rows := mustRun(t, m, forked(entry(2, 2, model.WantLast, 'n'), 2, 1, 2))
	require.EqualValues(t, 60, rows[0]['n'])
	rows = mustRun(t, m, entry(1, 2, model.WantLast, 'n'))
	require.EqualValues(t, 60, rows[0]['o'])
}

// TestTooManyCheckpoints: a sequence may have as many as in a snapshot, and no more.
func TestTooManyCheckpoints(t *testing.T) {
	m := NewModel(Size, Options{Rewind: 200})
	mustRun(t, m, entry(1, 0, model.WantNone, make([]int32, 200)...))
	var at []int
	for n := range snapshot.MaxCheckpoints + 1 {
		at = append(at, n+1)
	}
	mustRun(t, m, checkpoints(1, at[1:]...))
	_, err := m.Forward(t.Context(), checkpoints(1, at...))
	require.ErrorContains(t, err, "sequence 1 has 129 checkpoints, at most 128 are possible")
}
