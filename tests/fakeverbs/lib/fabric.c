#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

struct fabric *fab;
static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static char trouble[8192]; // why the fabric could not be created

uint64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int mutex_init(pthread_mutex_t *m, int shared) {
	pthread_mutexattr_t a;
	int rc = pthread_mutexattr_init(&a);
	if (rc == 0 && shared) {
		rc = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
#ifdef __linux__
		rc = rc != 0 ? rc : pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
#endif
	}
	return rc != 0 ? rc : pthread_mutex_init(m, &a);
}

static void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

void fabric_lock(pthread_mutex_t *m) {
	// Critical sections are short, and a thread that sleeps is woken later than
	// that: so this spins for a while first.
	int rc = pthread_mutex_trylock(m);
	for (int i = 0; rc == EBUSY && i < 1000; i++) {
		relax();
		rc = pthread_mutex_trylock(m);
	}
	if (rc == EBUSY) {
		rc = pthread_mutex_lock(m);
	}
#ifdef __linux__
	if (rc == EOWNERDEAD) { // its owner died inside; every intermediate state is harmless
		rc = pthread_mutex_consistent(m);
	}
#endif
	if (rc != 0) {
		fprintf(stderr, "fakeverbs: lock: %s\n", strerror(rc));
		abort();
	}
}

void fabric_unlock(pthread_mutex_t *m) {
	pthread_mutex_unlock(m);
}

int process_alive(pid_t pid) {
	if (pid == getpid()) {
		return 1;
	}
	if (kill(pid, 0) != 0) {
		return errno != ESRCH;
	}
#ifdef __linux__
	// A zombie that its parent has not waited for still has its pid.
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *in = fopen(path, "r");
	if (in == NULL) {
		return 0;
	}
	size_t n = fread(text, 1, sizeof text - 1, in);
	fclose(in);
	text[n] = 0;
	const char *end = strrchr(text, ')'); // the name may contain anything
	return end == NULL || (end[1] == ' ' && end[2] != 'Z' && end[2] != 'X');
#else
	return 1;
#endif
}

// init_region initialises a zeroed region.
static int init_region(struct fabric *f, int shared, const char *text) {
	f->shared = shared;
	int rc = mutex_init(&f->lock, shared);
	for (int i = 0; rc == 0 && i < MAX_QPS; i++) {
		rc = mutex_init(&f->qp[i].lock, shared);
	}
	for (int i = 0; rc == 0 && i < MAX_CQS; i++) {
		rc = mutex_init(&f->cq[i].lock, shared);
	}
	return rc != 0 ? rc : script_parse(f, text, trouble, sizeof trouble);
}

// slurp reads an entire text file.
static char *slurp(const char *path) {
	FILE *in = fopen(path, "r");
	if (in == NULL) {
		snprintf(trouble, sizeof trouble, "%s: %s", path, strerror(errno));
		return NULL;
	}
	size_t n = 0, room = 1 << 16;
	char *text = malloc(room + 1);
	while (text != NULL) {
		size_t k = fread(text + n, 1, room - n, in);
		n += k;
		if (k == 0) {
			break;
		}
		if (n == room) {
			char *more = realloc(text, 2 * room + 1);
			if (more == NULL) {
				free(text);
				text = NULL;
				break;
			}
			text = more;
			room *= 2;
		}
	}
	fclose(in);
	if (text != NULL) {
		text[n] = 0;
	}
	return text;
}

// attach maps the file of a fabric of several processes. The first process to
// lock it runs the script; the others wait for the lock, which is released if
// its owner dies.
static int attach(const char *dir, const char *text) {
	char path[4096];
	snprintf(path, sizeof path, "%s/fabric", dir);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), rc = 0;
	struct stat st = {0};
	void *p = MAP_FAILED;
	if (fd < 0 || flock(fd, LOCK_EX) != 0 || fstat(fd, &st) != 0 ||
	    ((size_t)st.st_size != sizeof(struct fabric) && ftruncate(fd, sizeof(struct fabric)) != 0) ||
	    (p = mmap(NULL, sizeof(struct fabric), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
		rc = errno;
		snprintf(trouble, sizeof trouble, "%s: %s", path, strerror(rc));
	}
	struct fabric *f = p;
	if (rc == 0 && atomic_load(&f->ready) == 0) {
		rc = init_region(f, 1, text);
		atomic_store(&f->ready, rc == 0 ? 1 : 2);
	} else if (rc == 0 && atomic_load(&f->ready) != 1) {
		snprintf(trouble, sizeof trouble, "%s: the process that began it could not read its script", path);
		rc = EINVAL;
	}
	if (fd >= 0) {
		flock(fd, LOCK_UN); // the mapping keeps the file open, and its lock with it
		close(fd);
	}
	if (rc != 0) {
		if (p != MAP_FAILED) {
			munmap(p, sizeof(struct fabric));
		}
		return rc;
	}
#ifdef PR_SET_PTRACER
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); // lets the others copy from and to this process
#endif
	fab = f;
	return 0;
}

static int make(const char *text) {
	const char *dir = getenv("FAKEVERBS_DIR");
	if (dir != NULL && dir[0] != 0) {
		return attach(dir, text);
	}
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
	flags |= MAP_NORESERVE;
#endif
	struct fabric *f = mmap(NULL, sizeof(struct fabric), PROT_READ | PROT_WRITE, flags, -1, 0);
	if (f == MAP_FAILED) {
		snprintf(trouble, sizeof trouble, "no memory for the fabric: %s", strerror(errno));
		return errno;
	}
	int rc = init_region(f, 0, text);
	if (rc != 0) {
		munmap(f, sizeof *f);
		return rc;
	}
	fab = f;
	return 0;
}

int fabric_ready(void) {
	int rc = 0;
	pthread_mutex_lock(&once);
	if (fab == NULL) {
		const char *path = getenv("FAKEVERBS_SCRIPT");
		char *text = path != NULL ? slurp(path) : NULL;
		rc = path != NULL && text == NULL ? ENOENT : make(text != NULL ? text : "");
		free(text);
		if (rc != 0) {
			fprintf(stderr, "fakeverbs: %s\n", trouble);
		}
	}
	pthread_mutex_unlock(&once);
	return rc;
}

static int owner_gone(pid_t pid) {
	return !process_alive(pid);
}

void sweep(void) {
	if (!fab->shared) {
		return;
	}
	for (int i = 0; i < MAX_QPS; i++) {
		struct qp *q = &fab->qp[i];
		if (atomic_load(&q->used) && owner_gone(q->pid)) {
			atomic_store(&q->used, 0);
		}
	}
	for (int i = 0; i < MAX_CQS; i++) {
		if (atomic_load(&fab->cq[i].used) && owner_gone(fab->cq[i].pid)) {
			atomic_store(&fab->cq[i].used, 0);
		}
	}
	for (int i = 0; i < MAX_MRS; i++) {
		if (atomic_load(&fab->mr[i].used) && owner_gone(fab->mr[i].pid)) {
			atomic_store(&fab->mr[i].used, 0);
		}
	}
	for (int i = 0; i < MAX_PDS; i++) {
		if (atomic_load(&fab->pd[i].used) && owner_gone(fab->pd[i].pid)) {
			atomic_store(&fab->pd[i].used, 0);
		}
		if (atomic_load(&fab->ctx[i].used) && owner_gone(fab->ctx[i].pid)) {
			atomic_store(&fab->ctx[i].used, 0);
		}
	}
}

// The control functions, for tests in the same process.

// rm_fake_script runs more lines of script: the first call creates the fabric.
// It returns 0 or an errno, with an explanation in err.
EXPORT int rm_fake_script(const char *text, char *err, size_t n) {
	int rc;
	pthread_mutex_lock(&once);
	trouble[0] = 0;
	if (fab == NULL) {
		rc = make(text);
	} else {
		fabric_lock(&fab->lock);
		rc = script_parse(fab, text, trouble, sizeof trouble);
		fabric_unlock(&fab->lock);
		for (int i = 0; i < MAX_QPS; i++) { // messages that were held may move now
			if (atomic_load(&fab->qp[i].used)) {
				qp_notify(&fab->qp[i]);
			}
		}
	}
	if (n > 0) {
		snprintf(err, n, "%s", trouble);
	}
	pthread_mutex_unlock(&once);
	return rc;
}

// rm_fake_reset unmaps a fabric of one process: the next call starts from scratch. It
// returns EBUSY while a process that lives has a device open.
EXPORT int rm_fake_reset(void) {
	int rc = 0;
	pthread_mutex_lock(&once);
	if (fab != NULL) {
		sweep();
	}
	for (int i = 0; fab != NULL && i < MAX_PDS; i++) {
		if (atomic_load(&fab->ctx[i].used)) {
			rc = EBUSY;
		}
	}
	if (rc == 0 && fab != NULL) {
		munmap(fab, sizeof *fab);
		fab = NULL;
	}
	pthread_mutex_unlock(&once);
	return rc;
}

#define COUNT(table, n) \
	for (int i = 0; i < (n); i++) { \
		total += atomic_load(&fab->table[i].used) != 0 && (dev < 0 || fab->table[i].dev == dev); \
	}

// device_called returns the first device with a name, whatever its host; -1 if
// there is none.
static int device_called(const char *name) {
	for (int i = 0; i < fab->devs; i++) {
		if (strcmp(fab->dev[i].name, name) == 0) {
			return i;
		}
	}
	return -1;
}

// rm_fake_count returns a count: contexts, pds, mrs, cqs, qps (alive),
// messages, bytes, lost, empty (since the beginning), fault:K (how often the K-th
// fault of the script has fired, from 0). "mrs:NAME" and so on count those of a
// device, "bytes:NAME" the bytes that have arrived from it, "pid:NAME" is the
// process that has it open, 0 for none. Anything else gives -1.
EXPORT int64_t rm_fake_count(const char *asked) {
	int64_t total = 0;
	int dev = -1;
	char what[32];
	if (fabric_ready() != 0) {
		return -1;
	}
	const char *name = strncmp(asked, "fault:", 6) == 0 ? NULL : strchr(asked, ':');
	if (name != NULL && (dev = device_called(name + 1)) < 0) {
		return -1;
	}
	snprintf(what, sizeof what, "%.*s", name == NULL ? (int)sizeof what - 1 : (int)(name - asked), asked);
	if (strcmp(what, "contexts") == 0) {
		COUNT(ctx, MAX_PDS)
	} else if (strcmp(what, "pds") == 0) {
		COUNT(pd, MAX_PDS)
	} else if (strcmp(what, "mrs") == 0) {
		COUNT(mr, MAX_MRS)
	} else if (strcmp(what, "cqs") == 0) {
		COUNT(cq, MAX_CQS)
	} else if (strcmp(what, "qps") == 0) {
		COUNT(qp, MAX_QPS)
	} else if (strcmp(what, "pid") == 0) {
		for (int i = 0; i < MAX_PDS; i++) {
			total = atomic_load(&fab->ctx[i].used) && fab->ctx[i].dev == dev ? fab->ctx[i].pid : total;
		}
	} else if (dev >= 0) {
		total = strcmp(what, "bytes") == 0 ? (int64_t)atomic_load(&fab->dev[dev].sent) : -1;
	} else if (strcmp(what, "messages") == 0) {
		total = (int64_t)atomic_load(&fab->messages);
	} else if (strcmp(what, "bytes") == 0) {
		total = (int64_t)atomic_load(&fab->bytes);
	} else if (strcmp(what, "empty") == 0) {
		total = (int64_t)atomic_load(&fab->empty);
	} else if (strcmp(what, "lost") == 0) {
		total = (int64_t)atomic_load(&fab->lost);
	} else if (strncmp(what, "fault:", 6) == 0 && atoi(what + 6) >= 0 && atoi(what + 6) < fab->faults) {
		total = (int64_t)atomic_load(&fab->fault[atoi(what + 6)].fired);
	} else {
		total = -1;
	}
	return total;
}
