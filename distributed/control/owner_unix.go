//go:build unix

package control

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the user who owns a file.
func ownerOf(info fs.FileInfo) (uid uint32, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return s.Uid, true
}
