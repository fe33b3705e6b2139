// One exchange of a 16 KiB all_sum among four ranks as one of them sees it: a
// receive and a send with each of three peers, polled in batches. Compiled
// twice: LOOP is the name, RMV_UNCHECKED removes the check.
#include "check_loop.h"

int LOOP(struct side *s) {
	int left = 0, err, failures = 0;
	for (int p = 0; p < PEERS; p++) {
		left += rmv_post_recv(s->peer[p].b, &s->peer[p].recv, 1, &err);
	}
	for (int p = 0; p < PEERS; p++) {
		left += rmv_post_send(s->peer[p].a, &s->peer[p].send, 1, &err);
	}
	while (left > 0) {
		struct rmv_wc wc[8];
		int n = rmv_poll_cq(s->cq, 8, wc);
		if (rmv_wc_bad(n, 8, wc)) {
			failures++;
			return -failures;
		}
		for (int i = 0; i < n; i++) {
			s->seen += wc[i].wr_id;
		}
		left -= n;
	}
	return 0;
}
