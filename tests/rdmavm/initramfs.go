package rdmavm

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// initramfs is the guest's root file system while it is assembled: the "newc"
// cpio archive that the kernel unpacks into memory
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type initramfs struct {
	files map[string][]byte // by path in the guest, without the first slash
	tree  string            // where libraries are searched after the system's folders
}

// add puts a file in its place, together with the libraries that it is linked
// with.
func (fs *initramfs) add(at, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	fs.files[strings.TrimPrefix(at, "/")] = b
	return fs.libraries(b, from)
}

// libraries adds what an ELF file needs: its loader at the path that the file
// names, the rest in the first folder of libraryDirs, which the loader searches
// by default.
func (fs *initramfs) libraries(b []byte, from string) error {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) {
			return nil // not an ELF file
		}
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(p.Open())
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		loader := strings.TrimRight(string(name), "\x00")
		if err := fs.library(loader, loader); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, n := range needed {
		at := path.Join(libraryDirs[0], n)
		if _, there := fs.files[strings.TrimPrefix(at, "/")]; there {
			continue
		}
		lib, err := fs.search(n)
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		if err := fs.library(at, lib); err != nil {
			return err
		}
	}
	return nil
}

func (fs *initramfs) library(at, from string) error {
	if _, there := fs.files[strings.TrimPrefix(at, "/")]; there {
		return nil
	}
	return fs.add(at, from)
}

// search finds a library by name.
func (fs *initramfs) search(name string) (string, error) {
	for _, root := range []string{"", fs.tree} {
		for _, d := range libraryDirs {
			if at := filepath.Join(root, d, name); isFile(at) {
				return at, nil
			}
		}
	}
	return "", fmt.Errorf("library %s is in none of %v", name, libraryDirs)
}

// write writes the archive. Folders precede their contents.
func (fs *initramfs) write(w io.Writer) error {
	folders := map[string]bool{}
	for name := range fs.files {
		for d := path.Dir(name); d != "."; d = path.Dir(d) {
			folders[d] = true
		}
	}
	var names []string
	for d := range folders {
		names = append(names, d)
	}
	for f := range fs.files {
		names = append(names, f)
	}
	slices.Sort(names)
	out := bufio.NewWriter(w)
	for i, n := range names {
		if folders[n] {
			entry(out, i+1, 0o040755, n, nil)
		} else {
			entry(out, i+1, 0o100755, n, fs.files[n])
		}
	}
	entry(out, 0, 0, "TRAILER!!!", nil)
	return out.Flush()
}

// entry writes a header of thirteen numbers of eight hex digits, the name and
// the data, the last two padded to multiples of four bytes. Errors are kept by
// the writer until Flush.
func entry(w *bufio.Writer, inode, mode int, name string, data []byte) {
	links, owner, changed := 1, 0, 0
	numbers := []int{inode, mode, owner, owner, links, changed, len(data), 0, 0, 0, 0, len(name) + 1, 0}
	fmt.Fprint(w, "070701")
	for _, n := range numbers {
		fmt.Fprintf(w, "%08x", n)
	}
	const header = 6 + 13*8
	fmt.Fprint(w, name, strings.Repeat("\x00", 1+padding(header+len(name)+1)))
	_, _ = w.Write(data)
	fmt.Fprint(w, strings.Repeat("\x00", padding(len(data))))
}

func padding(n int) int { return -n & 3 }
