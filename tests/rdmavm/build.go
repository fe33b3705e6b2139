package rdmavm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds a program for the guest from a package of this module: verb is
// "build" or "test -c", with or without flags; env is added to the environment.
func Build(ctx context.Context, out, verb, pkg string, env ...string) error {
	run := func(dir string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), env...)
		text, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
		}
		return strings.TrimSpace(string(text)), err
	}
	mod, err := run("", "env", "GOMOD")
	if err != nil {
		return err
	}
	root := filepath.Dir(mod)
	if _, err := run(root, append(strings.Fields(verb), "-o", out, pkg)...); err != nil {
		return err
	}
	// The sources are opened here, because another process builds the program and Go
	// caches a test's result as long as the files that the test opened are unchanged.
	dirs, err := run(root, "list", "-deps", "-test", "-f", "{{if .Module}}{{.Dir}}{{end}}", pkg)
	if err != nil {
		return err
	}
	for _, d := range strings.Split(dirs, "\n") {
		if _, err := os.ReadDir(d); d != "" && err != nil {
			return err
		}
	}
	return nil
}
