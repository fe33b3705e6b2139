package doctor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNetwork: what a rank logs about its host's network when it starts; a sound network
// gives no line.
func TestNetwork(t *testing.T) {
	lan := []Interface{{"eth0", 1500, []string{"10.0.0.1/24"}}}
	for name, c := range map[string]struct {
		system     string
		interfaces []Interface
		address    string
		tool       string // output of systemctl or the firewall of a Mac
		want       []string
	}{
		"sound":            {"linux", lan, "10.0.0.1", "inactive", nil},
		"no network":       {"linux", []Interface{}, "10.0.0.1", "inactive", []string{"only the loopback interface is up"}},
		"127.0.1.1":        {"linux", lan, "127.0.1.1", "inactive", []string{"the name of this host resolves to 127.0.1.1 only, which other hosts cannot reach"}},
		"a firewall":       {"linux", lan, "10.0.0.1", "active", []string{"a firewall is active: firewalld, ufw, nftables"}},
		"a Mac":            {"darwin", lan, "10.0.0.1", "Firewall is disabled. (State = 0)", nil},
		"a Mac's firewall": {"darwin", lan, "10.0.0.1", "Firewall is enabled. (State = 1)", []string{"a firewall is active: the application firewall of macOS"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Source{System: c.system, Limit: time.Minute,
				Hostname:   func() (string, error) { return "host", nil },
				Resolve:    func(context.Context, string) ([]string, error) { return []string{c.address}, nil },
				Interfaces: func() ([]Interface, error) { return c.interfaces, nil },
				Run:        func(context.Context, string, ...string) (string, error) { return c.tool, nil },
			}
			var got []string
			for _, f := range Network(t.Context(), s) {
				require.NotEmpty(t, f.Cure)
				got = append(got, f.Evidence)
			}
			require.Equal(t, c.want, got)
			s.Interfaces = func() ([]Interface, error) { return nil, errors.New("no such thing") }
			require.Empty(t, Network(t.Context(), s))
		})
	}
}
