package control

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
)

const (
	minKey     = 16   // bytes, after trimming
	maxKeyFile = 4096 // bytes
)

// ReadKey reads the secret of the cluster from a file: its content without
// white space at the end, at least 16 bytes. The file may have at most 4 KiB, and
// only its owner may have access to it. Errors name the file and the command
// that helps.
func ReadKey(path string) ([]byte, error) {
	// Checked before opening: opening a pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cluster key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("cluster key %s: %s; expected a regular file", path, info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cluster key: %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("cluster key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("cluster key %s: others can read or change it (mode %04o); run: chmod 600 %q", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("cluster key: %w", err)
	}
	key := bytes.TrimRight(text, " \t\r\n\v\f")
	const howTo = "make one with: head -c 32 /dev/urandom | base64"
	switch {
	case len(text) > maxKeyFile:
		return nil, fmt.Errorf("cluster key %s: longer than %d bytes: is it the right file? %s", path, maxKeyFile, howTo)
	case len(key) < minKey:
		return nil, fmt.Errorf("cluster key %s: %d bytes; at least %d are needed: %s", path, len(key), minKey, howTo)
	}
	return key, nil
}
