//go:build linux || darwin

package gguf

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
)

// mapFile maps the file at path for reading. No page is read.
func mapFile(path string) ([]byte, error) {
	// Stat before open, because opening a pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s: is a directory; expected a GGUF file, such as one in it (of a split model the first part)", path)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is %s; expected a regular file", path, info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping outlives it
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	size := info.Size()
	switch {
	case size == 0:
		return nil, fmt.Errorf("%s: is empty; expected a GGUF file", path)
	case size > math.MaxInt:
		return nil, fmt.Errorf("%s: %d bytes do not fit the address space", path, size)
	}
	data, err := mapPages(int(f.Fd()), int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: map %d bytes (is the address space limited, as by ulimit -v?): %w", path, size, err)
	}
	huge(data)
	return data, nil
}

// mapFilled returns n page-aligned read-only bytes that fill has written; with a nil fill
// zeros, which take no memory.
func mapFilled(n int, fill func([]byte) error) ([]byte, error) {
	mem, err := mapPages(-1, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("memory for %d bytes: %w", n, err)
	}
	if fill != nil {
		populate(mem)
		if err := fill(mem); err != nil {
			return nil, errors.Join(err, unmapFile(mem))
		}
	}
	if err := syscall.Mprotect(mem, syscall.PROT_READ); err != nil {
		return nil, errors.Join(fmt.Errorf("protect %d bytes: %w", n, err), unmapFile(mem))
	}
	return mem, nil
}
