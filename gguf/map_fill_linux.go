package gguf

import "golang.org/x/sys/unix"

// hugePage is the huge page of x86-64 and of arm64 with pages of 4 KiB.
const hugePage = 2 << 20

// huge asks for huge pages in a mapping, because they make reading it faster. File systems
// and kernels without them ignore it.
func huge(mem []byte) {
	if len(mem) >= hugePage {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
}

// populate brings in all pages of mem in one call, as huge pages where they fit. mem is a
// new mapping, and its user will write every byte. One call is made because in a virtual
// machine a page fault for each page costs several times as much as clearing the page.
// Where the kernel cannot, pages come with their first write.
func populate(mem []byte) {
	huge(mem)
	_ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE) // since Linux 5.14
}
