package partial

import "golang.org/x/sys/unix"

// renameNew renames a file unless the new name is taken; os.ErrExist.
func renameNew(from, to string) error { return unix.RenamexNp(from, to, unix.RENAME_EXCL) }
