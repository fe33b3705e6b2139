package enginetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
)

func entry(seq model.SeqID, pos int, want model.Want, tokens ...int32) model.Step {
	return model.Step{Entries: []model.Entry{{Seq: seq, Pos: pos, Tokens: tokens, Want: want}}}
}

// mustRun runs and commits a step and returns its rows.
func mustRun(t *testing.T, m *Model, s model.Step) [][]float32 {
	t.Helper()
	rows, err := m.Forward(context.Background(), s)
	require.NoError(t, err)
	m.Commit(s)
	return rows
}

func TestChunksAndRewindGiveTheLogitsOfOnePass(t *testing.T) {
	m := NewModel(50, Options{})
	whole := mustRun(t, m, entry(1, 0, model.WantAll, 3, 1, 4, 1))
	mustRun(t, m, entry(2, 0, model.WantNone, 3, 1))
	mustRun(t, m, entry(2, 2, model.WantLast, 4, 9))
	again := mustRun(t, m, entry(2, 3, model.WantLast, 1))
	require.Equal(t, whole[3], again[0], "a rewound sequence has other logits")
	require.Equal(t, 4, m.Len(2), "after a rewind")
}

func TestRules(t *testing.T) {
	for name, s := range map[string]model.Step{
		"gap":           entry(1, 5, model.WantLast, 1),
		"new, not at 0": entry(7, 1, model.WantLast, 1),
		"rewind":        entry(1, 1, model.WantLast, 1),
		"id":            entry(1, 4, model.WantLast, 50),
		"empty entry":   entry(1, 4, model.WantLast),
		"context":       entry(1, 4, model.WantNone, make([]int32, 7)...),
		"step":          entry(8, 0, model.WantNone, make([]int32, 9)...),
		"drop twice":    {Drop: []model.SeqID{3}},
		"dropped":       entry(3, 0, model.WantLast, 1),
		"twice":         {Entries: append(entry(4, 0, model.WantLast, 1).Entries, entry(4, 1, model.WantLast, 1).Entries...)},
	} {
		m := NewModel(50, Options{ContextLength: 10, MaxTokens: 8})
		mustRun(t, m, entry(1, 0, model.WantNone, 1, 2, 3, 4))
		mustRun(t, m, entry(3, 0, model.WantNone, 1))
		mustRun(t, m, model.Step{Drop: []model.SeqID{3}})
		if _, err := m.Forward(context.Background(), s); err == nil || len(m.Violations()) != 1 {
			t.Errorf("%s: error %v, violations %q", name, err, m.Violations())
		}
	}
}

func TestScriptSaysItsText(t *testing.T) {
	m := Script("no")
	var said []int32
	for range 2 { // the second prompt extends the first one and its answer
		at := m.Len(1)
		rows := mustRun(t, m, entry(1, at, model.WantLast, 'h', 'i'))
		for {
			best := int32(slices.Index(rows[0], slices.Max(rows[0])))
			said = append(said, best)
			if best == EOS {
				break
			}
			rows = mustRun(t, m, entry(1, m.Len(1), model.WantLast, best))
		}
	}
	require.Equal(t, []int32{'n', 'o', EOS, 'n', 'o', EOS}, said)
}

func TestMemoryLimit(t *testing.T) {
	m := NewModel(50, Options{MemoryLimit: 4})
	mustRun(t, m, entry(1, 0, model.WantNone, 1, 2, 3))
	var full *model.MemoryError
	_, err := m.Forward(context.Background(), entry(2, 0, model.WantNone, 1, 2))
	if !errors.Is(err, model.ErrNoMemory) || !errors.As(err, &full) || full.Seq != 2 {
		t.Fatalf("error %v", err)
	}
	mustRun(t, m, model.Step{Drop: []model.SeqID{1}})
	mustRun(t, m, entry(2, 0, model.WantNone, 1, 2))
}

// TestTruncatedCommit: a step may be committed without its last guesses, which leave no
// trace, also of the text that is said.
func TestTruncatedCommit(t *testing.T) {
	m := NewModel(Size, Options{Say: func([]int32) string { return "abcdef" }})
	certain := func(row []float32) byte {
		best := 0
		for i, x := range row {
			if x > row[best] {
				best = i
			}
		}
		return byte(best)
	}
	rows := mustRun(t, m, entry(1, 0, model.WantLast, 'x', 'y'))
	require.Equal(t, byte('a'), certain(rows[0]))
	s := entry(1, 2, model.WantAll, 'a', 'b', 'c', 'x', 'd')
	rows, err := m.Forward(context.Background(), s)
	require.NoError(t, err)
	for i, want := range "bcd" {
		require.Equal(t, byte(want), certain(rows[i]))
	}
	s, err = s.Truncated([]int{3})
	require.NoError(t, err)
	m.Commit(s)
	require.Equal(t, 5, m.Len(1))
	require.Equal(t, byte('e'), certain(mustRun(t, m, entry(1, 5, model.WantLast, 'd'))[0]))
	require.Empty(t, m.Violations())

	s = entry(1, 6, model.WantLast, 'e', 'f')
	_, err = m.Forward(context.Background(), s)
	require.NoError(t, err)
	s.Entries[0].Tokens = s.Entries[0].Tokens[:1]
	require.Panics(t, func() { m.Commit(s) }, "it does not want all rows")
}
