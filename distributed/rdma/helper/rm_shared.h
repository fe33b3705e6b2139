// Memory that two processes share, and the signals of a helper.
#ifndef RMH_SHARED_H
#define RMH_SHARED_H

#include <stddef.h>

// rmh_shared makes a file of n zeroed bytes that has no name, is closed on exec and keeps its
// length, whoever has its descriptor: the descriptor, or a negative errno.
int rmh_shared(size_t n);
// rmh_map_at maps such a file over a range of this process's memory that is
// reserved for it: 0 or an errno.
int rmh_map_at(int fd, void *at, size_t n);
// rmh_plain_end makes the process end of its own faults as one without a runtime
// does: by the signal, at once and without a dump of the memory. 0 or an errno.
int rmh_plain_end(void);

#endif
