//go:build !linux && !darwin

package gguf

import (
	"fmt"
	"runtime"
)

// mapFile tells that files cannot be mapped here.
func mapFile(path string) ([]byte, error) {
	return nil, fmt.Errorf("%s: cannot map files on %s; Linux and macOS are supported", path, runtime.GOOS)
}

func unmapFile([]byte) error { return nil }
