//go:build !linux && !darwin

package gguf

import (
	"fmt"
	"runtime"
)

// mapFile reports that files cannot be mapped on this system.
func mapFile(path string) ([]byte, error) {
	return nil, fmt.Errorf("%s: cannot map files on %s; Linux and macOS are supported", path, runtime.GOOS)
}

// mapFilled reports the same.
func mapFilled(n int, _ func([]byte) error) ([]byte, error) {
	return nil, fmt.Errorf("no memory outside of Go's heap for %d bytes on %s; Linux and macOS are supported", n, runtime.GOOS)
}

func unmapFile([]byte) error { return nil }
