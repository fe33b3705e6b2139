package gguf

import "golang.org/x/sys/unix"

// hugePage is the huge page of x86-64 and of arm64 with pages of 4 KiB.
const hugePage = 2 << 20

// bringIn gives all of mem, a new mapping of which every byte will be written, its pages
// at once, huge ones where they fit. One by one, each would be an interrupt, which in a
// virtual machine takes several times as long as clearing the page. A kernel that does
// not know how leaves it at that.
func bringIn(mem []byte) {
	if len(mem) >= hugePage {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	_ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE) // since Linux 5.14
}
