package control

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

const (
	minKey     = 16   // bytes, after trimming
	maxKeyFile = 4096 // bytes
)

// ReadKey reads the secret of the cluster from a file: its content without white space at
// the end, at least 16 bytes. The file may have at most 4 KiB. It must belong to the user
// of this process alone, or to root and a group that may read it, because service
// managers and Kubernetes pass secrets that way to a program that is not root. Errors
// name the file and the command that helps.
func ReadKey(path string) ([]byte, error) {
	// The check comes before opening, because opening a pipe would wait for a writer.
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
	if mode := info.Mode().Perm(); mode&shared(info) != 0 {
		return nil, fmt.Errorf("cluster key %s: others can read or change it (mode %04o); run: chmod %s %q", path, mode, advised(info), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("cluster key: %w", err)
	}
	key := bytes.TrimRight(text, " \t\r\n\v\f")
	const howTo = "make one with: head -c 32 /dev/urandom | base64"
	switch {
	case len(text) > maxKeyFile:
		return nil, fmt.Errorf("cluster key %s: longer than %d bytes, so it is probably the wrong file; %s", path, maxKeyFile, howTo)
	case len(key) < minKey:
		return nil, fmt.Errorf("cluster key %s: %d bytes; at least %d are needed: %s", path, len(key), minKey, howTo)
	}
	return key, nil
}

// shared returns the permissions that a file with a secret must not have but has.
func shared(info fs.FileInfo) fs.FileMode {
	switch {
	case runtime.GOOS == "windows":
		return 0
	case handed(info):
		return 0o037
	}
	return 0o077
}

// advised returns the mode for a file with a secret.
func advised(info fs.FileInfo) string {
	if handed(info) {
		return "640"
	}
	return "600"
}

// handed reports whether a file belongs to root and this process to another user. The
// process can then read it only through its group or through an access list, and the mode
// shows the rights of both as the group's.
func handed(info fs.FileInfo) bool {
	owner, known := ownerOf(info)
	return known && owner == 0 && os.Geteuid() != 0
}
