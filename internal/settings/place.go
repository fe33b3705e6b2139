package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"ringmaster/internal/trust"
)

const (
	// Flag is the flag that names the file.
	Flag = "config"
	// None as the flag's value reads no file.
	None = "none"
	// SystemPath is the file of a host.
	SystemPath = "/etc/ringmaster/ringmaster.toml"
	// MaxBytes is the size of the largest file that is read.
	MaxBytes = 64 << 10
)

// Places lists the candidates for the file if none is named: the user's, then the host's;
// the first that exists is read. The current directory is not among them, because files
// there may be someone else's.
func Places(lookup func(string) (string, bool)) []string {
	var out []string
	if dir, ok := lookup("XDG_CONFIG_HOME"); ok && filepath.IsAbs(dir) {
		out = append(out, filepath.Join(dir, "ringmaster", "ringmaster.toml"))
	} else if home, ok := lookup("HOME"); ok && filepath.IsAbs(home) {
		out = append(out, filepath.Join(home, ".config", "ringmaster", "ringmaster.toml"))
	}
	return append(out, SystemPath)
}

// Find reads the named file, or the first of the places that exists. It returns its path
// and its text, or an empty path if there is none. A file that exists but cannot be read
// is an error, because ignoring it could lift a restriction.
func Find(named string, places []string) (path string, text []byte, err error) {
	if named == None {
		return "", nil, nil
	}
	if named != "" {
		places = []string{named}
	}
	for _, path := range places {
		text, err := read(path)
		if named == "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("%w; --%s names another file, or is %s to read no file", err, Flag, None)
		}
		return path, text, nil
	}
	return "", nil, nil
}

// read returns the text of a file of at most MaxBytes. It opens regular files only, since
// some devices act when they are opened, and trusts those of this process's user and
// root.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := trust.File(f); err != nil { // it may have become another file since
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("%s is larger than %d KiB", path, MaxBytes>>10)
	}
	return text, err
}
