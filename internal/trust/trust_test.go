package trust

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// as runs the rest of a test as if this process belonged to another user than its files.
func as(t *testing.T, id int) {
	old := user
	user = func() int { return id }
	t.Cleanup(func() { user = old })
}

func check(t *testing.T, path string) error {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	return File(f)
}

// TestOwner: files of this user and of root are trusted, others not. As root it gives a
// file to another user; otherwise it acts as another user.
func TestOwner(t *testing.T) {
	dir := t.TempDir()
	path := testenv.WriteFile(t, filepath.Join(dir, "f"), "")
	require.NoError(t, check(t, path))
	if os.Geteuid() == 0 {
		as(t, 4711)
		require.NoError(t, check(t, path), "root's")
		require.NoError(t, os.Chown(path, 4711, -1))
		require.NoError(t, check(t, path), "its own")
		require.NoError(t, os.Chown(path, 4712, -1))
	} else {
		as(t, os.Geteuid()+1)
	}
	require.ErrorIs(t, check(t, path), ErrForeign)
}

// TestWritableByEveryone: a file that every user may write is not only its owner's.
func TestWritableByEveryone(t *testing.T) {
	path := testenv.WriteFile(t, filepath.Join(t.TempDir(), "f"), "")
	for mode, trusted := range map[os.FileMode]bool{0o444: true, 0o644: true, 0o664: true, 0o666: false, 0o602: false, 0o777: false} {
		require.NoError(t, os.Chmod(path, mode))
		err := check(t, path)
		require.Equal(t, trusted, err == nil, "%o", mode)
		if !trusted {
			require.ErrorIs(t, err, ErrForeign)
			require.ErrorContains(t, err, "chmod o-w")
		}
	}
}

// TestLinks: links of this user and of root are followed anywhere in a path, because
// Kubernetes mounts secrets that way; another user's are not.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..2026"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "..2026", "keys"), nil, 0o600))
	require.NoError(t, os.Symlink("..2026", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/keys", filepath.Join(dir, "keys")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "keys"), filepath.Join(dir, "absolute")))
	require.NoError(t, os.Symlink("../"+filepath.Base(dir)+"/./keys", filepath.Join(dir, "up")))
	for _, name := range []string{"keys", "absolute", "up", "..data/keys", "..data/../keys"} {
		require.NoError(t, check(t, filepath.Join(dir, name)), name)
	}
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root can make files that belong to root")
	}
	for _, link := range []string{"..data", "keys"} {
		require.NoError(t, os.Lchown(filepath.Join(dir, link), 4711, -1))
		for _, name := range []string{"keys", "absolute", "up"} {
			require.ErrorIs(t, check(t, filepath.Join(dir, name)), ErrForeign, "%s by %s", name, link)
		}
		require.NoError(t, check(t, filepath.Join(dir, "..2026", "keys")))
		require.NoError(t, os.Lchown(filepath.Join(dir, link), 0, -1))
	}
}

func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	require.ErrorContains(t, check(t, dir), "expected a regular file")
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	f, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer f.Close()
	require.ErrorContains(t, File(f), "expected a regular file")
}
