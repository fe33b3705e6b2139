package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
	"ringmaster/parallel"
)

// TestALeaderRestartedWithOtherSettings: a follower that waits for its leader
// loads the model for the settings of the next leader, whatever those of the
// last one were.
func TestALeaderRestartedWithOtherSettings(t *testing.T) {
	var loaded []*fakeRank
	w := NewWorker(1, hostOf(func(s Settings, rank int) (Rank, error) {
		o := enginetest.Options{ContextLength: s.Context, MaxTokens: s.MaxTokens}
		loaded = append(loaded, &fakeRank{Model: enginetest.NewModel(enginetest.Size, o), number: rank, settings: s, flip: -1})
		return loaded[len(loaded)-1], nil
	}))
	var infos []model.Info
	for _, s := range []Settings{{Context: 4096, MaxTokens: 64}, {Context: 1024, MaxTokens: 64}, {Context: 8192, MaxTokens: 32}} {
		s.Reduce, s.Placement = parallel.Sum, upTo(2, 4)
		settings := encoded(t, s)
		require.NoError(t, w.Form(t.Context(), settings))
		require.Equal(t, s, loaded[len(loaded)-1].settings)
		infos = append(infos, loaded[len(loaded)-1].Info())
	}
	require.Len(t, loaded, 3)
	require.NotEqual(t, infos[0], infos[1])
	require.ErrorContains(t, loaded[0].Close(), "closed twice", "its memory was freed before the next was loaded")
	require.NoError(t, w.Close(t.Context()))
}
