package verbs

import "syscall"

// mapAnon maps memory that a child of a fork does not see, because
// copy-on-write would move the parent's page away from the device.
func mapAnon(n int) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	if err := syscall.Madvise(b, syscall.MADV_DONTFORK); err != nil {
		_ = syscall.Munmap(b) // the first error is the one to return
		return nil, err
	}
	return b, nil
}

func unmap(b []byte) error { return syscall.Munmap(b) }
