package constraint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForced: bytes are forced as long as the grammar leaves one choice, and no longer.
func TestForced(t *testing.T) {
	g := compile(t, Sequence(Literal(`{"key": `), Choice(Literal(`true`), Literal(`tree`), Literal(`0`)), Literal("}")))
	m := g.Matcher(pieces, NewWork())
	require.Empty(t, m.Forced(20), "before the first mask nothing is known")
	mask := newMask()
	require.NoError(t, m.Mask(t.Context(), mask))
	require.Equal(t, `{"key": `, string(m.Forced(20)))
	require.Equal(t, `{"k`, string(m.Forced(3)))
	for _, b := range []byte(`{"key": t`) {
		require.NoError(t, m.Accept(int32(b)))
	}
	require.Equal(t, "r", string(m.Forced(20)))
	for _, b := range []byte(`ru`) {
		require.NoError(t, m.Accept(int32(b)))
	}
	require.Equal(t, "e}", string(m.Forced(20)), "then it may end")
}

// TestForcedTakesNoWork: guesses take none of the work that a request has for its masks, and
// find nothing where that is much.
func TestForcedTakesNoWork(t *testing.T) {
	work := NewWork()
	m := compile(t, Literal(strings.Repeat("x", 40))).Matcher(pieces, work)
	require.NoError(t, m.Mask(t.Context(), newMask()))
	before := work.left.Load()
	require.Less(t, before, int64(requestWork))
	require.Len(t, m.Forced(30), 30)
	require.Equal(t, before, work.left.Load())
}
