package partial

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

var sixteen = Identity{Size: 16, Tag: "v1", Chunk: 6}

// whole opens a partial file of 16 bytes and fills it.
func whole(t *testing.T, path string) *File {
	f, _ := open(t, path, sixteen)
	for i, text := range []string{"012345", "6789ab", "cdef"} {
		require.NoError(t, f.Append(i, []byte(text)))
	}
	return f
}

// TestFinishReplacesNothing: whatever has the name when the file is complete stays, and
// so does the fetched file.
func TestFinishReplacesNothing(t *testing.T) {
	for name, appear := range map[string]func(path string) error{
		"file":          func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.gguf")
			f := whole(t, path)
			require.NoError(t, appear(path))
			before, err := os.Lstat(path)
			require.NoError(t, err)
			require.ErrorIs(t, f.Finish(), ErrExists)
			require.NoError(t, f.Close())
			after, err := os.Lstat(path)
			require.NoError(t, err)
			require.True(t, os.SameFile(before, after))
			got := testenv.ReadFile(t, path+".part")
			require.Equal(t, "0123456789abcdef", string(got))
			f, dropped := open(t, path, sixteen)
			require.False(t, dropped)
			require.NoError(t, f.Close())
		})
	}
}

// TestRenameWithoutTheCall: renaming on file systems that cannot rename without
// replacing.
func TestRenameWithoutTheCall(t *testing.T) {
	for _, e := range []error{syscall.EINVAL, syscall.ENOSYS, &os.LinkError{Op: "link", Err: syscall.EPERM}, syscall.ENOTSUP} {
		require.True(t, unable(e), e)
	}
	lacks := func(string, string) error { return syscall.ENOTSUP }
	for name, rename := range map[string]func(from, to string) error{
		"one call": rename,
		"link":     func(from, to string) error { return renameBy(lacks, os.Link, from, to) },
		"claim":    func(from, to string) error { return renameBy(lacks, lacks, from, to) },
	} {
		dir := t.TempDir()
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		require.NoError(t, os.WriteFile(from, []byte("new"), 0o600))
		require.NoError(t, os.WriteFile(to, []byte("old"), 0o600))
		require.ErrorIs(t, rename(from, to), os.ErrExist, name)
		got := testenv.ReadFile(t, to)
		require.Equal(t, "old", string(got), name)
		require.NoError(t, os.Remove(to))
		require.NoError(t, rename(from, to), name)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, left, 1, name)
		require.Equal(t, "to", left[0].Name(), name)
	}
	for _, e := range []error{nil, os.ErrExist, syscall.ENOSPC, syscall.EACCES} {
		require.False(t, unable(e), e)
	}
}

// TestLinksAreNotFollowed: a partial file, its state or its next state that is a symbolic
// link or another name of a file is never written through.
func TestLinksAreNotFollowed(t *testing.T) {
	for _, name := range []string{".part", ".part.json", ".part.json.new"} {
		for kind, link := range map[string]func(from, to string) error{"symbolic": os.Symlink, "hard": os.Link} {
			t.Run(kind+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "m.gguf")
				require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
				require.NoError(t, link(victim, path+name))
				f, _, err := Open(path, sixteen)
				if name == ".part" {
					require.ErrorContains(t, err, "remove it")
				} else {
					require.NoError(t, err)
					require.NoError(t, f.Save())
					require.NoError(t, f.Close())
				}
				got := testenv.ReadFile(t, victim)
				require.Equal(t, "precious", string(got))
			})
		}
	}
}

// TestPipes: a pipe in place of a file blocks nothing.
func TestPipes(t *testing.T) {
	for _, name := range []string{".part", ".part.json", ".part.json.new"} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		require.NoError(t, syscall.Mkfifo(path+name, 0o600))
		f, _, err := Open(path, sixteen)
		if name == ".part" {
			require.ErrorContains(t, err, "remove it")
			continue
		}
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

// TestSizesThatNothingHas: no memory is taken for a size that a source only announces,
// and no file is left behind.
func TestSizesThatNothingHas(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []Identity{
		{Size: 1e17, Tag: "v", Chunk: 64 << 20}, {Size: 1e17, Tag: "v", Chunk: 1e17}, {Size: 1 << 62, Tag: "v", Chunk: 1 << 20},
		{Size: MostBytes, Tag: "v", Chunk: 1}, {Size: 0, Chunk: 1}, {Size: -1, Chunk: 1}, {Size: 1, Chunk: 0},
		{Size: MostBytes, Tag: "v", Chunk: 64 << 20}, // more than a file of ext4 may have
	} {
		f, _, err := Open(filepath.Join(dir, "m.gguf"), id)
		if err == nil { // on a file system with large files
			require.NoError(t, f.Remove())
			require.NoError(t, f.Close())
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, "%+v", id)
	}
}

// TestLacking: the data of a partial file on the disk counts, its holes and links do not.
func TestLacking(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.EqualValues(t, 1<<30, Lacking(path, 1<<30))
	require.NoError(t, os.WriteFile(path+".part", make([]byte, 1<<20), 0o600))
	require.LessOrEqual(t, Lacking(path, 1<<30), int64(1<<30-1<<20))
	require.NoError(t, os.Truncate(path+".part", 1<<30))
	require.Greater(t, Lacking(path, 1<<30), int64(1<<29))
}
