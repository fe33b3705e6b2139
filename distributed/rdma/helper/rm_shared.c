#include "rm_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __linux__
static int nameless(void) { return memfd_create("ringmaster-rails", MFD_CLOEXEC | MFD_ALLOW_SEALING); }

// seal fixes the length, because a helper that made the file shorter would end the server
// by SIGBUS at its next access. It returns 0, or -1 with errno.
static int seal(int fd) { return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL); }
#else
// seal does nothing, because macOS lets the length of shared memory be set only once.
static int seal(int fd) {
	(void)fd;
	return 0;
}

// The name is removed at once, because macOS has no files without a name. It has at most 31
// characters (PSHMNAMLEN).
static int nameless(void) {
	static int count;
	for (int tries = 0; tries < 100; tries++) {
		char name[32];
		snprintf(name, sizeof name, "/rm.%x.%x", (unsigned)getpid(), (unsigned)__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED));
		int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
		if (fd >= 0) {
			shm_unlink(name);
			fcntl(fd, F_SETFD, FD_CLOEXEC);
			return fd;
		}
		if (errno != EEXIST) {
			return -1;
		}
	}
	return -1;
}
#endif

int rmh_shared(size_t n) {
	int fd = nameless();
	if (fd >= 0 && (ftruncate(fd, (off_t)n) != 0 || seal(fd) != 0)) {
		int err = errno;
		close(fd);
		return -err;
	}
	return fd >= 0 ? fd : -errno;
}

int rmh_map_at(int fd, void *at, size_t n) {
	void *p = mmap(at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	return p == MAP_FAILED ? errno : 0;
}

int rmh_plain_end(void) {
	int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP};
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		signal(faults[i], SIG_DFL);
	}
	// Dumps are off, because a dump would contain shared memory and delay the visible end
	// while it is written.
	struct rlimit none = {0, 0};
	return setrlimit(RLIMIT_CORE, &none) == 0 ? 0 : errno;
}
