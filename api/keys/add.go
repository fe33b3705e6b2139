package keys

import (
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"ringmaster/internal/reload"
	"ringmaster/internal/trust"
	"ringmaster/internal/usage"
)

// Add appends the line of a key to a file that is right, and has no key of the
// name.
func Add(path string, k Key) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return usage.Errorf("--api-keys: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := trust.File(f); err != nil {
		return usage.Errorf("--api-keys: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, reload.MaxFile+1))
	if err != nil {
		return err
	}
	if len(text) > reload.MaxFile {
		return usage.Errorf("--api-keys: %s is larger than %d MiB, which is the most that a server reads", path, reload.MaxFile>>20)
	}
	list, err := Parse(text)
	if err != nil {
		return usage.Errorf("%s: %w", path, err)
	}
	if slices.ContainsFunc(list, func(x Key) bool { return x.Name == k.Name }) {
		return usage.Errorf("%s has a key of the name %s", path, k.Name)
	}
	if _, err := f.WriteString(k.Line()); err != nil {
		return err
	}
	return f.Sync()
}
