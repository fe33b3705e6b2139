package host

import (
	"slices"

	"golang.org/x/sys/unix"
)

// networkFileSystems are the types of macOS for files of another host.
var networkFileSystems = []string{"nfs", "smbfs", "afpfs", "webdav"}

// FileSystem returns the type of the file system of a file, and whether it is on another
// host.
func FileSystem(path string) (name string, network bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return "unknown", false
	}
	name = unix.ByteSliceToString(s.Fstypename[:])
	return name, slices.Contains(networkFileSystems, name)
}

// CachedShare is unknown on this system.
func CachedShare([][]byte) float64 { return -1 }
