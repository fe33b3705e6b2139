#ifndef CHECK_LOOP_H
#define CHECK_LOOP_H

#include "../../../../distributed/rdma/verbs/rm_verbs.h"

enum { PEERS = 3 };

struct side {
	struct rmv_cq *cq;
	uint64_t seen;
	struct {
		struct rmv_qp *a, *b;
		struct rmv_sge from, to;
		struct rmv_send_wr send;
		struct rmv_recv_wr recv;
	} peer[PEERS];
};

int checked(struct side *s);
int unchecked(struct side *s);

#endif
