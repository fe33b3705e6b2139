// Memory that two processes share, and the signals of a helper.
#ifndef RMH_SHARED_H
#define RMH_SHARED_H

#include <stddef.h>

// rmh_shared makes a file of n zeroed bytes that has no name, is closed on exec and keeps its
// length even if another process has its descriptor. It returns the descriptor, or a negative
// errno.
int rmh_shared(size_t n);
// rmh_map_at maps such a file over a reserved range of this process's memory: 0 or an errno.
int rmh_map_at(int fd, void *at, size_t n);
// rmh_plain_end makes a fault end the process as it ends one without a runtime: by the
// signal, at once and without a memory dump. 0 or an errno.
int rmh_plain_end(void);

#endif
