package partial

import "golang.org/x/sys/unix"

// renameNew renames a file unless the new name is taken; os.ErrExist.
func renameNew(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}
