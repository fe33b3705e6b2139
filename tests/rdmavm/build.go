package rdmavm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build makes a program for the guest out of a package of this module: verb is
// "build", "test -c" or either with flags; env are additions to the environment.
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
	// A test's result is kept as long as the files that it opened are the same.
	// The program is made by another process, so its sources are looked at here.
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
