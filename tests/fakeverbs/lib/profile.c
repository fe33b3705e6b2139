// What Apple's provider is like, by version of macOS. The numbers are public
// facts, none is our own: ../README.md says who is the source of each.
#include "fake.h"

#include <stdlib.h>
#include <string.h>

// Told of all versions: "11 or 10" queue pairs are 11 in query_device, but only 10 can
// be created.
static const struct profile profiles[] = {
    {.name = "26.2",
     .max_qp = 10,
     .told_qp = 11,
     .max_pd = 11,
     .max_cq = 11,
     .max_mr = 100,
     .mr_crash = 1,
     .frames = FRAMES_SINGLE,
     .recv_from = RMV_QPS_RTS,
     .gids = "ll,v4,ll2"},
    {.name = "26.3",
     .max_qp = 10,
     .told_qp = 11,
     .max_pd = 11,
     .max_cq = 11,
     .max_mr = 100,
     .frames = FRAMES_MANY,
     .local_write = 1,
     .recv_from = RMV_QPS_RTS,
     .gids = "ll,v4,ll2"},
    {.name = "27.0",
     .max_qp = 3,
     .told_qp = 3,
     .max_pd = 11, // unknown on 27.0: that of 26
     .max_cq = 11, // the same
     .max_mr = 100,
     .frames = FRAMES_PACKETS,
     .local_write = 1,
     .zero_lost = 1,
     .recv_from = RMV_QPS_INIT,
     .gids = "uuid,ll"},
};

const struct profile *profile_find(const char *name) {
	for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
		if (strcmp(profiles[i].name, name) == 0) {
			return &profiles[i];
		}
	}
	return NULL;
}

const struct profile *profile_default(void) {
	const char *v = getenv("FAKEVERBS_PROFILE");
	return profile_find(v == NULL || v[0] == 0 ? "26.3" : v);
}

uint32_t grant_told(int rule, uint32_t asked) {
	uint32_t n = 1;
	switch (rule) {
	case GRANT_ASKED:
		return asked;
	case GRANT_ROUND:
	case GRANT_APPLE:
		while (n < asked) {
			n *= 2;
		}
		n = 4 * n - 1; // 256 gives 1023, as observed
		if (rule == GRANT_APPLE) {
			// 128 took 1008 frames and refused the 1024th; the limit of all is 4095.
			n = n < 1023 ? 1023 : n > MAX_DEPTH - 1 ? MAX_DEPTH - 1 : n;
		}
		return n;
	}
	return (uint32_t)rule;
}

uint32_t grant_real(int rule, uint32_t asked) {
	// What is told is too optimistic; 2 x 128 frames with 32 requests work.
	return rule == GRANT_APPLE ? (asked < 256 ? 256 : asked) : grant_told(rule, asked);
}
