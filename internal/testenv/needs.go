package testenv

import (
	"context"
	"os/exec"
	"testing"
	"time"
)

// NeedTool returns the path of a program, and skips the test where it is not installed.
// missing is the message of the skip: what is not installed, and where it comes from.
func NeedTool(t testing.TB, name, missing string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip("NOT CHECKED: " + missing)
	}
	return path
}

// Within returns a context that ends after d, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
