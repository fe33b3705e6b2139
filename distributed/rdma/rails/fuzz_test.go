package rails

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzPlan: whatever the hosts report, there is a plan or an error, and a
// plan's matrix has a row for each host.
func FuzzPlan(f *testing.F) {
	good, err := json.Marshal(macReports(f, false))
	require.NoError(f, err)
	f.Add(good, false, true)
	f.Add([]byte(`[{"name":"a","system":"linux","devices":[{"name":"x","addrs":["10.0.0.1/24"]}]},{"name":"b","system":"linux"}]`), true, false)
	f.Add([]byte(`[{},{},{}]`), true, true)
	f.Fuzz(func(t *testing.T, text []byte, switched, ring bool) {
		var reports []Report
		if len(text) > 1<<16 || json.Unmarshal(text, &reports) != nil || len(reports) > 8 {
			return
		}
		for _, r := range reports {
			_ = r.Text()
		}
		if plan, err := MakePlan(reports, switched, ring); err == nil {
			require.Len(t, plan.Matrix, len(reports))
		}
	})
}
