package metalsim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestMisuse: each wrong use of the API aborts with its message.
func TestMisuse(t *testing.T) {
	for _, name := range cases(t, "misuse") {
		t.Run(strings.ReplaceAll(name, "/", ","), func(t *testing.T) {
			t.Parallel()
			message, _, _ := strings.Cut(name, " / ")
			r := drive(t, name)
			require.Equal(t, -1, r.code, "it must abort:\n%s", r.out)
			require.Contains(t, r.out, "metalsim: ")
			require.Contains(t, r.out, message)
		})
	}
}

// TestUse: correct use works in every mode and order; what must fail fails.
func TestUse(t *testing.T) {
	type run struct {
		mode string
		seed int
	}
	runs := []run{{"async", 0}}
	if testenv.Rest(t, testenv.Full, "lazy and synchronous completion, and other orders") {
		runs = append(runs, run{"async", 1}, run{"lazy", 0}, run{"lazy", 2}, run{"sync", 3})
	}
	for _, name := range cases(t, "use") {
		for _, run := range runs {
			t.Run(fmt.Sprintf("%s/%s/%d", name, run.mode, run.seed), func(t *testing.T) {
				t.Parallel()
				more := []string{"MTLSIM_MODE=" + run.mode, fmt.Sprintf("MTLSIM_SEED=%d", run.seed)}
				switch name {
				case "failing":
					more = append(more, "MTLSIM_FAIL=bad:2")
				case "latency":
					more = append(more, "MTLSIM_LATENCY=8000,4000,2000")
				case "limits":
					more = append(more, "MTLSIM_MAX_THREADS=512")
				}
				r := drive(t, name, more...)
				require.Zero(t, r.code, r.out)
			})
		}
	}
}

// TestNoDevice: a host without a GPU.
func TestNoDevice(t *testing.T) {
	r := drive(t, "no device", "MTLSIM_NO_DEVICE=1")
	require.Zero(t, r.code, r.out)
}

// TestSettings: unknown settings are reported.
func TestSettings(t *testing.T) {
	r := drive(t, "order", "MTLSIM_MODE=quick")
	require.Equal(t, -1, r.code)
	require.Contains(t, r.out, "MTLSIM_MODE=quick")
	r = drive(t, "order", "MTLSIM_LATENCY=150")
	require.Equal(t, -1, r.code)
	require.Contains(t, r.out, "MTLSIM_LATENCY=150")
}

// TestWithoutStrict: divergent simdgroup functions then run over the lanes that
// are waiting, and the kernel is not stopped.
func TestWithoutStrict(t *testing.T) {
	r := drive(t, "kernels", "MSLSIM_STRICT=0")
	require.Equal(t, 3, r.code, r.out)
	require.Contains(t, r.out, "lacks 'divergent control flow'")
}

// TestLeaks: objects alive at exit are reported on request.
func TestLeaks(t *testing.T) {
	r := drive(t, "order", "MTLSIM_LEAKS=1")
	require.Zero(t, r.code, r.out)
	require.Contains(t, r.out, "still alive: SimBuffer")
	require.NotContains(t, r.out, "still alive: SimCommandBuffer")
}
