package metalsim

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// withoutCompiler runs a command as on a host that has no clang, with
// METAL_REQUIRED set to required.
func withoutCompiler(t *testing.T, required, name string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "MSLSIM_CLANG=no-such-compiler", "METAL_REQUIRED="+required)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit, "%s", out)
	}
	return result{string(out), cmd.ProcessState.ExitCode()}
}

// TestNothingChecked: where the device cannot run, the scripts say that they
// checked nothing; METAL_REQUIRED=1 makes that a failure, also of the tests
// here.
func TestNothingChecked(t *testing.T) {
	testenv.Need(t, testenv.Full, "scripts without a device")
	for _, script := range []string{"metal-check.sh", "metal-test.sh", "metal-tsan.sh", "metal-asan.sh"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			for required, code := range map[string]int{"": 0, "0": 0, "1": 1} {
				r := withoutCompiler(t, required, "../../scripts/"+script)
				require.Equal(t, code, r.code, "METAL_REQUIRED=%s: %s", required, r.out)
				require.Contains(t, r.out, "NOTHING WAS CHECKED of metal/ by "+script)
			}
		})
	}
	t.Run("go test", func(t *testing.T) {
		t.Parallel()
		for required, code := range map[string]int{"": 0, "0": 0, "1": 1} {
			r := withoutCompiler(t, required, os.Args[0], "-test.run=^TestTestsNeedTheDevice$", "-test.v")
			require.Equal(t, code, r.code, "METAL_REQUIRED=%s: %s", required, r.out)
			require.Contains(t, r.out, "NOT CHECKED")
			require.Contains(t, r.out, "clang-19")
		}
	})
}

// TestTestsNeedTheDevice only requires the device, as every test here does.
func TestTestsNeedTheDevice(t *testing.T) { env(t) }

// TestMetalTestWithoutTests: a pattern that matches no test is a failure.
func TestMetalTestWithoutTests(t *testing.T) {
	testenv.Need(t, testenv.Full, "make metal-test that runs no test")
	env(t)
	// Without TEST_RESULTS the empty run leaves no events among those of the real one.
	r := start(t, []string{"MODES=lazy", "SEEDS=0", "MODELS=", "TEST_RESULTS="}, "../../scripts/metal-test.sh", "-run", "TestThatDoesNotExist")
	require.Equal(t, 1, r.code, r.out)
	require.Contains(t, r.out, "NOTHING WAS CHECKED")
}
