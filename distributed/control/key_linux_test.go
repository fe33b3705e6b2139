package control

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestReadKeyOfRoot: a server that is not root reads the key that root gives it, by a group
// or, as systemd does with credentials, by an access list; other rights are refused, with
// the command that helps.
func TestReadKeyOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root can make files that belong to root")
	}
	const id = 12345 // of the server's user and group
	// Under its own user: rights of the file, owner, group; "" is no error.
	for _, c := range []struct {
		name       string
		mode       os.FileMode
		owner, gid int
		reads      bool // by an access list too
		err        string
	}{
		{"root's, for the group", 0o640, 0, id, false, ""},
		{"mounted by Kubernetes", 0o440, 0, id, false, ""},
		{"a credential of systemd", 0o400, 0, 0, true, ""},
		{"its own", 0o600, id, id, false, ""},
		{"its own, for a group", 0o640, id, id, false, "run: chmod 600"},
		{"root's alone", 0o600, 0, 0, false, "permission denied"},
		{"of another group", 0o640, 0, id + 1, false, "permission denied"},
		{"the group may change it", 0o660, 0, id, false, "(mode 0660); run: chmod 640"},
		{"everybody may read it", 0o644, 0, id, false, "(mode 0644); run: chmod 640"},
		{"another user's, for the group", 0o640, id + 1, id, false, "run: chmod 600"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			for dir := filepath.Dir(path); dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
				require.NoError(t, os.Chmod(dir, 0o755))
			}
			require.NoError(t, os.WriteFile(path, []byte("0123456789abcdef"), 0o600))
			require.NoError(t, os.Chown(path, c.owner, c.gid))
			require.NoError(t, os.Chmod(path, c.mode))
			if c.reads {
				if err := unix.Setxattr(path, "system.posix_acl_access", mayRead(id), 0); errors.Is(err, unix.ENOTSUP) {
					t.Skip("NOT CHECKED: the file system has no access lists")
				} else {
					require.NoError(t, err)
				}
			}
			end := make(chan error)
			go func() {
				runtime.LockOSThread() // for good, so that the thread ends with its user
				err := as(id)
				if err == nil {
					_, err = ReadKey(path)
				}
				end <- err
			}()
			err := <-end
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

// as changes the user of this thread, with only the group of the same number.
func as(id uintptr) error {
	for _, call := range [][4]uintptr{{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, id, id, id}, {unix.SYS_SETRESUID, id, id, id}} {
		if _, _, err := unix.RawSyscall(call[0], call[1], call[2], call[3]); err != 0 {
			return err
		}
	}
	return nil
}

// mayRead is an access list in the kernel's form (linux/posix_acl_xattr.h): the owner and
// one user may read.
func mayRead(user uint32) []byte {
	list := binary.LittleEndian.AppendUint32(nil, 2) // version
	for _, e := range []struct {
		tag, rights uint16
		id          uint32
	}{{1, 4, ^uint32(0)}, {2, 4, user}, {4, 0, ^uint32(0)}, {16, 4, ^uint32(0)}, {32, 0, ^uint32(0)}} {
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.rights)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	return list
}
