// Package trust reports whether a file can be trusted: only this process's user and root
// can have made it. A file of another user says what that user wants it to say.
package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrForeign is wrapped by the errors for files that belong to another user, or that
// everyone may write.
var ErrForeign = errors.New("only what belongs to this process's user or to root is trusted")

// user is this process's; tests set it.
var user = os.Geteuid

// Owner returns an error unless a file belongs to this process's user or to root.
func Owner(path string, info fs.FileInfo) error {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Uid == 0 || int64(s.Uid) == int64(user()) {
		return nil
	}
	return fmt.Errorf("%s belongs to user %d: %w; change its owner (chown) or name another", path, s.Uid, ErrForeign)
}

// File returns an error unless an open file is a regular one that belongs to this
// process's user or to root, not everyone may write it, and all symbolic links on the way
// to it belong to them. Kubernetes mounts secrets by links of root.
func File(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is a %s; expected a regular file", f.Name(), info.Mode().Type())
	}
	if err := Owner(f.Name(), info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("every user may write %s: %w; run chmod o-w on it", f.Name(), ErrForeign)
	}
	return links(f.Name())
}

// mostLinks is how many successive links are followed, as in Linux.
const mostLinks = 40

// links returns an error unless every symbolic link on the way to a path belongs to this
// process's user or to root.
func links(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	rest, at := path, "/"
	for n := 0; rest != ""; {
		name, after, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		rest = after
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if err := Owner("the symbolic link "+next, info); err != nil {
			return err
		}
		target, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if n++; n > mostLinks {
			return fmt.Errorf("%s: %w", path, syscall.ELOOP)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = target + "/" + after
	}
	return nil
}
