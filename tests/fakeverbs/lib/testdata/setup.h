// What the programs here share: the library, checks, and a queue pair's way to RTS.
#ifndef SETUP_H
#define SETUP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../../distributed/rdma/verbs/rm_lib.h"

int rm_fake_script(const char *text, char *err, size_t n);

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

static struct rmv_lib *lib;

// move brings a queue pair to a state, with the number and the GID of its peer.
static void move(struct rmv_qp *q, uint32_t peer, const uint8_t gid[16], int state) {
	static const int masks[] = {0, RMV_QP_STATE | RMV_QP_PKEY_INDEX | RMV_QP_PORT | RMV_QP_ACCESS_FLAGS,
	                            RMV_QP_STATE | RMV_QP_AV | RMV_QP_PATH_MTU | RMV_QP_DEST_QPN | RMV_QP_RQ_PSN,
	                            RMV_QP_STATE | RMV_QP_SQ_PSN};
	struct rmv_qp_attr a;
	memset(&a, 0, sizeof a);
	a.qp_state = (uint32_t)state;
	a.port_num = a.ah_attr.port_num = a.ah_attr.is_global = a.ah_attr.sgid_index = 1;
	a.path_mtu = 5;
	a.dest_qp_num = peer;
	memcpy(a.ah_attr.dgid.raw, gid, 16);
	CHECK(rmv_modify_qp(lib, q, &a, masks[state]) == 0);
}

#endif
