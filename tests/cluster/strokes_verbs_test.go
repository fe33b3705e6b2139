//go:build cgo && linux

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
	"ringmaster/tests/fakeverbs"
)

// The second fabric of the campaign is RDMA over the software verbs library, with a cable
// between any two ranks.
func init() {
	fabrics = append(fabrics, fabric{"software verbs", func(t *testing.T, o *harness.Options) func() {
		shared := t.TempDir()
		var script strings.Builder
		matrix := make([][]any, o.Size)
		device := func(of, to int) string { return fmt.Sprintf("rdma_en%d", 10*of+to) }
		for i := range o.Size {
			matrix[i] = make([]any, o.Size)
			for j := range o.Size {
				if i != j {
					matrix[i][j] = []string{device(i, j)}
					fmt.Fprintf(&script, "device %s host=%d\n", device(i, j), i)
				}
			}
		}
		for i := range o.Size {
			for j := range i {
				fmt.Fprintf(&script, "cable %s %s\n", device(i, j), device(j, i))
			}
		}
		f := fabricIn(t, shared, script.String())
		devices := filepath.Join(t.TempDir(), "devices.json")
		text := testenv.JSON(t, matrix)
		require.NoError(t, os.WriteFile(devices, text, 0o600))
		o.Env = append(o.Env, "RINGMASTER_VERBS_LIBRARY="+f.Path, "FAKEVERBS_DIR="+shared)
		o.Flags = append(o.Flags, "--transport", "rdma", "--rdma-devices", devices)
		return func() {
			for _, what := range []string{"qps", "pds", "contexts"} {
				require.Eventually(t, func() bool { return f.Count(what) == 0 }, hangLimit, 10*time.Millisecond, "%s are left", what)
			}
		}
	}})
}

// fabricEnvironment guards the variable that names a fabric's file while a fabric is
// made, because the jobs of a campaign make theirs at the same time.
var fabricEnvironment sync.Mutex

// fabricIn makes a fabric with its file in dir, for all processes.
func fabricIn(t *testing.T, dir, script string) *fakeverbs.Fabric {
	fabricEnvironment.Lock()
	defer fabricEnvironment.Unlock()
	require.NoError(t, os.Setenv("FAKEVERBS_DIR", dir))
	defer os.Unsetenv("FAKEVERBS_DIR")
	return fakeverbs.New(t, script)
}
