// The server's side: objects that look like those of a verbs library to
// rm_verbs.h, whose posts and polls go through rings.
#ifndef RMH_SERVER_H
#define RMH_SERVER_H

#include "rm_ring.h"

// rmh_device is an open device of a helper.
struct rmh_device {
	struct rmv_context context;
	struct rmh_bell *bell;
	int socket;       // bytes on it wake the helper
	_Atomic int lost; // the helper has ended
};

struct rmh_server_cq {
	struct rmv_cq v;
	struct rmh_device *device;
	struct rmh_ring *ring;
	uint64_t size, head;
};

struct rmh_server_qp {
	struct rmv_qp v;
	struct rmh_device *device;
	struct rmh_ring *ring;
	uint64_t size, tail, taken; // taken: as last seen
};

// The objects; NULL if memory has run out. The caller keeps the rings and the
// bell.
struct rmh_device *rmh_device_new(struct rmh_bell *bell, int socket);
struct rmh_server_cq *rmh_server_cq_new(struct rmh_device *d, struct rmh_ring *ring, uint64_t size);
struct rmh_server_qp *rmh_server_qp_new(struct rmh_device *d, struct rmh_ring *ring, uint64_t size, uint32_t num);

// rmh_device_lost makes every later post fail with EIO, and every poll without
// completions with -EIO.
void rmh_device_lost(struct rmh_device *d);

// rmh_trouble_of returns rmh_ring.trouble of a completion queue.
uint64_t rmh_trouble_of(struct rmh_server_cq *c);

// rmh_post_sync posts a request and waits at most limit ns until the helper has
// passed it to the device. It returns 0, the errno of the refusal, EIO when the
// helper has ended, or ETIMEDOUT.
int rmh_post_sync(struct rmh_server_qp *q, int send, uint64_t wr_id, uint64_t addr, uint32_t length, uint32_t lkey,
                  int64_t limit);

// rmh_settle waits until the helper has passed all requests to the device, and
// returns what rmh_post_sync does.
int rmh_settle(struct rmh_server_qp *q, int64_t limit);

#endif
