package testenv

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// skipped stands for a test that wants to be skipped.
type skipped struct {
	testing.TB
	why, attribute string
}

func (s *skipped) Attr(key, value string) { s.attribute = key + "=" + value }

func (s *skipped) Helper() {}

func (s *skipped) Skipf(format string, args ...any) { s.why = fmt.Sprintf(format, args...) }

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		value      string
		exhaustive bool
		want       Level
	}{{"", false, Fast}, {"0", false, Fast}, {"1", false, Full}, {"", true, Exhaustive}, {"1", true, Exhaustive}} {
		t.Setenv(Variable, c.value)
		*exhaustive = c.exhaustive
		for l, attribute := range map[Level]string{Fast: "", Full: "level=full", Exhaustive: "level=exhaustive"} {
			require.Equal(t, c.want >= l, At(l), "%q at level %v", c.value, l)
			s := skipped{TB: t}
			Need(&s, l, "a part")
			if At(l) {
				require.Empty(t, s.why)
			} else {
				require.Equal(t, "NOT CHECKED: a part runs with "+l.String(), s.why)
				require.Equal(t, attribute, s.attribute)
			}
		}
	}
	*exhaustive = false
	for _, unknown := range []string{"yes", "all"} {
		t.Setenv(Variable, unknown)
		require.Panics(t, func() { At(Full) })
	}
}

func TestFreeAddr(t *testing.T) {
	one, err := FreeAddr("127.0.0.1")
	require.NoError(t, err)
	other, err := FreeAddr("127.0.0.1")
	require.NoError(t, err)
	require.NotEqual(t, one, other)

	// Another process that looks for a block finds this one taken, even when its
	// addresses are used up.
	for range 3 * blockPorts {
		_, err := FreeAddr("127.0.0.1")
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, len(ports.claims), 4)
	for _, l := range ports.claims {
		_, err := net.Listen("tcp", l.Addr().String())
		require.Error(t, err)
	}
}
