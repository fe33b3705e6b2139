package flags

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"ringmaster/internal/usage"
)

// CheckOut refuses the path of an output file that cannot be created, before the work for
// its contents. The error names the flag. An empty path means none.
func CheckOut(flag, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return usage.Errorf("--%s %s is a directory; give the name of a file in it", flag, path)
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return usage.Errorf("--%s: %w; make the directory first", flag, err)
	}
	if !info.IsDir() {
		return usage.Errorf("--%s: %s is not a directory", flag, filepath.Dir(path))
	}
	return nil
}

// ReadInput reads a file of at most most bytes that a flag names.
func ReadInput(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d MiB; is it the right file?", path, most>>20)
	}
	return text, err
}

// CheckDir refuses the path of a directory that is something else. A missing directory is
// created when it is needed.
func CheckDir(flag, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return usage.Errorf("--%s: %w; expected a directory", flag, err)
	case !info.IsDir():
		return usage.Errorf("--%s %s is a file; expected a directory", flag, path)
	}
	return nil
}
