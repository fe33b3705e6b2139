#include "fake.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

int copy_memory(pid_t to, uint64_t dst, pid_t from, uint64_t src, size_t n) {
	if (n == 0) {
		return 0;
	}
	pid_t me = fab->shared ? getpid() : to; // a system call each time
	if (to == me && from == me) {
		memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, n);
		return 0;
	}
#ifdef __linux__
	while (n > 0) {
		struct iovec d = {(void *)(uintptr_t)dst, n}, s = {(void *)(uintptr_t)src, n};
		ssize_t k = to == me ? process_vm_readv(from, &d, 1, &s, 1, 0) : process_vm_writev(to, &s, 1, &d, 1, 0);
		if (k <= 0) {
			return k < 0 ? errno : EFAULT;
		}
		n -= (size_t)k, dst += (uint64_t)k, src += (uint64_t)k;
	}
	return 0;
#else
	return ENOTSUP;
#endif
}
