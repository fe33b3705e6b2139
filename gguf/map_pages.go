//go:build (linux && !metalsim) || darwin

package gguf

import "syscall"

// mapPages maps n bytes of a file, or memory for fd -1, at an address of the
// system's choice, which is a multiple of its pages.
func mapPages(fd, n, prot, flags int) ([]byte, error) { return syscall.Mmap(fd, 0, n, prot, flags) }

// unmapFile unmaps what mapFile or mapFilled returned.
func unmapFile(data []byte) error { return syscall.Munmap(data) }
