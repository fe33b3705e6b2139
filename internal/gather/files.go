package gather

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ringmaster/internal/trust"
)

// What a host keeps of its groups: files that only its user can read, because they have keys.
// They lie in the user's cache directory, below ringmaster: groups/NAME for those that it leads
// with up, joined for those that it joined.

// mostFile bounds a file that is read, in bytes.
const mostFile = 1 << 20

// StateDir is where the groups of this host's user are kept.
func StateDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("where to keep the group's key: %w", err)
	}
	return filepath.Join(dir, "ringmaster"), nil
}

// readState reads a file of writeState; os.ErrNotExist if there is none.
func readState(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := trust.File(f); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s has a key, and others can read or change it (mode %04o); run: chmod 600 %q", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostFile))
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: remove it and join again", path, err)
	}
	return nil
}

// writeState replaces a file.
func writeState(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return replace(path, append(text, '\n'))
}

// replace gives a file new content, all of it or none.
func replace(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
