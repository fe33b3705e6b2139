package testenv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		value string
		want  Level
	}{{"", Fast}, {"0", Fast}, {"1", Full}, {"all", Exhaustive}} {
		t.Setenv(Variable, c.value)
		for _, l := range []Level{Fast, Full, Exhaustive} {
			require.Equal(t, c.want >= l, At(l), "%q at level %v", c.value, l)
			ran := false
			t.Run("", func(t *testing.T) { Need(t, l, "a part of this test"); ran = true })
			require.Equal(t, At(l), ran)
		}
	}
	t.Setenv(Variable, "yes")
	require.Panics(t, func() { At(Full) })
}
