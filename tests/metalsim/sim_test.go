package metalsim

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unchecked ends a test that cannot run on this host: as a failure with
// METAL_REQUIRED=1, else as skipped.
func unchecked(t *testing.T, why string) {
	t.Helper()
	if v := os.Getenv("METAL_REQUIRED"); v != "" && v != "0" {
		t.Fatalf("NOT CHECKED, but METAL_REQUIRED is set: %s", why)
	}
	t.Skipf("NOT CHECKED: %s", why)
}

// environment is what env.sh prints, as KEY=VALUE; it builds the device if
// necessary.
var environment = sync.OnceValues(func() ([]string, error) {
	cmd := exec.Command("bash", "-c", `out=$(./env.sh) && eval "$out" && env -0`)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New(strings.TrimSpace(stderr.String()))
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00"), nil
})

func env(t *testing.T) []string {
	t.Helper()
	e, err := environment()
	if err != nil && (strings.Contains(err.Error(), "missing (Debian packages)") || strings.Contains(err.Error(), "runs on Linux x86-64")) {
		unchecked(t, err.Error())
	}
	require.NoError(t, err)
	return e
}

func value(t *testing.T, name string) string {
	t.Helper()
	v := ""
	for _, kv := range env(t) {
		if k, s, _ := strings.Cut(kv, "="); k == name {
			v = s
		}
	}
	return v
}

// result is the result of a child process.
type result struct {
	out  string
	code int // exit code, -1 for a signal
}

// start runs a program with the environment of the device and additional
// variables.
func start(t *testing.T, more []string, name string, args ...string) result {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append([]string{}, env(t)...), more...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), "%s %v took too long:\n%s", name, args, out)
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", out)
	}
	return result{string(out), cmd.ProcessState.ExitCode()}
}

var driverOnce = sync.OnceValues(func() (string, error) {
	e, err := environment()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "metalsim")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "driver")
	cmd := exec.Command("bash", "-c", `$CC $CGO_CFLAGS -Wall -Wextra -Werror testdata/*.m -o "$0" $CGO_LDFLAGS`, out)
	cmd.Env = e
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", errors.New(string(text))
	}
	return out, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if d, err := driverOnce(); err == nil {
		os.RemoveAll(filepath.Dir(d))
	}
	os.Exit(code)
}

// drive runs one case of the driver.
func drive(t *testing.T, name string, more ...string) result {
	t.Helper()
	env(t)
	d, err := driverOnce()
	require.NoError(t, err)
	source, err := filepath.Abs("testdata/driver.metal")
	require.NoError(t, err)
	return start(t, append([]string{"DRIVER_SOURCE=" + source, "MSLSIM_STRICT=1"}, more...), d, name)
}

// cases lists the driver's cases of one kind.
func cases(t *testing.T, kind string) []string {
	t.Helper()
	env(t)
	d, err := driverOnce()
	require.NoError(t, err)
	r := start(t, nil, d)
	require.Zero(t, r.code, r.out)
	var names []string
	for _, l := range strings.Split(r.out, "\n") {
		if n, ok := strings.CutPrefix(l, kind+" "); ok {
			names = append(names, n)
		}
	}
	require.NotEmpty(t, names)
	return names
}
