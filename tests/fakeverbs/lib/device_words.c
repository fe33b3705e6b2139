// The device statement of a script.
#include "script.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// add_gid writes entry i of a device's table.
static void add_gid(struct device *d, const uint8_t gid[16], uint32_t type) {
	if (d->gids < MAX_GIDS) {
		memcpy(d->gid[d->gids], gid, 16);
		d->gid_type[d->gids++] = type;
	}
}

int make_gids(struct parser *p, struct device *d, int i, char *order) {
	// ll is made of the interface's MAC, 02:00:00:00:HOST:NUMBER, as RFC 4291
	// says (02 becomes 00); ll2 and the UUID are bits without a meaning, but for
	// the UUID's version and variant (RFC 9562).
	uint8_t ll[16] = {0xfe, 0x80, [11] = 0xff, 0xfe}, ll2[16] = {0xfe, 0x80}, v4[16] = {[10] = 0xff, [11] = 0xff}, uuid[16];
	ll[14] = (uint8_t)d->host;
	ll[15] = (uint8_t)(i + 1);
	uint64_t x = d->guid * 0x9e3779b97f4a7c15u;
	for (int k = 0; k < 8; k++) {
		ll2[8 + k] = uuid[k] = (uint8_t)(x >> (56 - 8 * k));
		uuid[8 + k] = (uint8_t)(~x >> 8 * k);
	}
	uuid[6] = (uint8_t)(0x40 | (uuid[6] & 0x0f));
	uuid[8] = (uint8_t)(0x80 | (uuid[8] & 0x3f));
	memcpy(v4 + 12, d->ip, 4);
	d->gids = 0;
	char *save = NULL;
	for (char *w = strtok_r(order, ",", &save); w != NULL; w = strtok_r(NULL, ",", &save)) {
		const uint8_t zero[16] = {0};
		const uint8_t *g = strcmp(w, "ll") == 0     ? ll
		                   : strcmp(w, "v4") == 0   ? v4
		                   : strcmp(w, "ll2") == 0  ? ll2
		                   : strcmp(w, "uuid") == 0 ? uuid
		                   : strcmp(w, "zero") == 0 ? zero
		                                            : NULL;
		if (g == NULL) {
			return fail(p, "gids are of ll, v4, ll2, uuid, zero; not %s", w);
		}
		if (d->link == LINK_ETH) {
			add_gid(d, g, RMV_GID_ROCE_V1); // each address twice
			add_gid(d, g, RMV_GID_ROCE_V2);
		} else {
			add_gid(d, g, RMV_GID_IB);
		}
	}
	return 0;
}

static int norecv(const char *s, int otherwise) {
	static const char *const names[] = {"hold", "drop", "kill", "rnr"};
	return s == NULL ? otherwise : lookup(names, 4, s, strlen(s));
}

static int grant(const char *s) {
	return strcmp(s, "asked") == 0 ? GRANT_ASKED : strcmp(s, "round") == 0 ? GRANT_ROUND
	                                           : strcmp(s, "apple") == 0   ? GRANT_APPLE
	                                                                       : atoi(s);
}

// frames_rule is the value of frames=; the names are in the order of enum frames.
static int frames_rule(const char *s, int otherwise) {
	static const char *const names[] = {"0", "many", "single", "packets"};
	return s == NULL ? otherwise : strcmp(s, "1") == 0 ? FRAMES_MANY
	                                                   : lookup(names, 4, s, strlen(s));
}

// recv_state is the value of recv_from=.
static int recv_state(const char *s, int otherwise) {
	static const char *const names[] = {"init", "rtr", "rts"};
	int k = s == NULL ? -1 : lookup(names, 3, s, strlen(s));
	return s == NULL ? otherwise : k < 0 ? -1
	                                     : RMV_QPS_INIT + k;
}

// parse_rules reads the words that say what a device refuses, and how. Those of
// a device that is not Apple's (profile NULL) refuse nothing.
static int parse_rules(struct parser *p, struct device *d, const struct profile *o, char **w, int n) {
	d->frames = frames_rule(value(w, n, "frames"), o == NULL ? FRAMES_NONE : o->frames);
	d->recv_from = recv_state(value(w, n, "recv_from"), o == NULL ? RMV_QPS_INIT : o->recv_from);
	if (d->frames < 0 || d->recv_from < 0) {
		return fail(p, "frames is many, single, packets or 0; recv_from is init, rtr or rts");
	}
	d->zero_lost = (int)number(w, n, "zero_lost", o != NULL && o->zero_lost);
	d->local_write = (int)number(w, n, "local_write", o == NULL || o->local_write);
	d->mr_crash = (int)number(w, n, "mr_crash", o != NULL && o->mr_crash);
	d->mr_first = (int)number(w, n, "mr_first", o != NULL);
	d->negative = (int)number(w, n, "negative", o != NULL);
	d->once = (int)number(w, n, "once", o != NULL);
	d->crash = (int)number(w, n, "crash", 0);
	const char *s = value(w, n, "grant_send"), *r = value(w, n, "grant_recv");
	d->grant_send = s != NULL ? grant(s) : o != NULL ? GRANT_APPLE
	                                                 : GRANT_ASKED;
	d->grant_recv = r != NULL ? grant(r) : o != NULL ? GRANT_APPLE
	                                                 : GRANT_ASKED;
	d->silent_depth = (int)number(w, n, "silent_depth", 0);
	return 0;
}

int parse_device(struct parser *p, char **w, int n) {
	struct fabric *f = p->f;
	if (n < 1 || f->devs == MAX_DEVS) {
		return fail(p, "device NAME …, at most %d", MAX_DEVS);
	}
	struct device *d = &f->dev[f->devs];
	memset(d, 0, sizeof *d);
	snprintf(d->name, sizeof d->name, "%s", w[0]);
	w[0] = NULL;
	d->host = (int)number(w, n, "host", 0);
	for (int i = 0; i < f->devs; i++) {
		if (f->dev[i].host == d->host && strcmp(f->dev[i].name, d->name) == 0) {
			return fail(p, "device %s of host %d is there already", d->name, d->host);
		}
	}
	if (d->host < 0 || d->host >= MAX_HOSTS) {
		return fail(p, "host %d: 0 to %d", d->host, MAX_HOSTS - 1);
	}
	static const char *const links[] = {"tb", "ib", "eth"};
	const char *s = value(w, n, "link");
	d->link = s == NULL ? LINK_TB : lookup(links, 3, s, strlen(s));
	if (d->link < 0) {
		return fail(p, "link is tb, ib or eth");
	}
	static const int layers[] = {RMV_LINK_THUNDERBOLT, RMV_LINK_INFINIBAND, RMV_LINK_ETHERNET};
	int tb = d->link == LINK_TB;
	d->link_layer = (int)number(w, n, "link_layer", layers[d->link]);
	const struct profile *o = NULL;
	s = value(w, n, "profile");
	if (s != NULL || tb) {
		o = s != NULL ? profile_find(s) : profile_default();
		if (o == NULL || !tb) {
			return fail(p, "profile is 26.2, 26.3 or 27.0, and needs link=tb");
		}
	}
	d->swtch = -1;
	d->lid = (uint16_t)(d->link == LINK_ETH ? 0 : f->devs + 1);
	d->guid = (uint64_t)number(w, n, "guid", (int64_t)(0x0200000000000000ull + (uint64_t)f->devs + 1));
	s = value(w, n, "state");
	atomic_store(&d->state, s != NULL && strcmp(s, "down") == 0 ? RMV_PORT_DOWN : RMV_PORT_ACTIVE);
	int64_t mtu = number(w, n, "mtu", 4096);
	for (d->mtu = 1; d->mtu < 5 && 128 << d->mtu < mtu; d->mtu++) {
	}
	memcpy(d->ip, (const uint8_t[4]){10, 77, (uint8_t)f->devs, 1}, 4);
	s = value(w, n, "ip");
	if (s != NULL && inet_pton(AF_INET, s, d->ip) != 1) {
		return fail(p, "ip %s is no IPv4 address", s);
	}
	char order[64];
	s = value(w, n, "gids");
	snprintf(order, sizeof order, "%s", s != NULL ? s : tb                ? o->gids
	                                                : d->link == LINK_ETH ? "ll,v4"
	                                                                      : "ll");
	if (make_gids(p, d, f->devs, order) != 0) {
		return EINVAL;
	}
	d->rc = (int)number(w, n, "rc", !tb);
	d->max_qp = (int)number(w, n, "max_qp", tb ? o->max_qp : MAX_QPS);
	d->told_qp = (int)number(w, n, "told_qp", tb ? d->max_qp + o->told_qp - o->max_qp : d->max_qp);
	d->max_mr = (int)number(w, n, "max_mr", tb ? o->max_mr : MAX_MRS);
	d->max_pd = (int)number(w, n, "max_pd", tb ? o->max_pd : MAX_PDS);
	d->max_cq = (int)number(w, n, "max_cq", tb ? o->max_cq : MAX_CQS);
	d->max_cqe = (int)number(w, n, "max_cqe", MAX_CQE);
	d->max_wr = (int)number(w, n, "max_wr", MAX_DEPTH - 1);
	d->max_mr_size = (uint64_t)number(w, n, "max_mr_size", tb ? 16384000 : INT64_MAX);
	d->max_mem = (uint64_t)number(w, n, "max_mem", INT64_MAX);
	if (parse_rules(p, d, o, w, n) != 0) {
		return EINVAL;
	}
	s = value(w, n, "mismatch");
	d->mismatch_both = s != NULL && strcmp(s, "both") == 0;
	s = value(w, n, "norecv");
	d->norecv_uc = norecv(s, tb ? NORECV_HOLD : NORECV_DROP);
	d->norecv_rc = norecv(s, NORECV_RNR);
	if (d->norecv_uc < 0) {
		return fail(p, "norecv is hold, drop, kill or rnr");
	}
	s = value(w, n, "unreachable");
	d->unreachable = s != NULL ? atoi(s) : tb ? 60 : d->link == LINK_ETH ? 110 : 0; // "silent" is 0
	d->late = (int)number(w, n, "late", 0);
	d->poison = (int)number(w, n, "poison", 0);
	d->latency = (uint64_t)(number(w, n, "latency_ns", 0));
	d->rate = (uint64_t)(number(w, n, "mbps", 0)) * 1000000;
	d->rc_timeout = (uint64_t)number(w, n, "rc_timeout_us", 20000) * 1000;
	if (leftover(p, w, n) != 0) {
		return EINVAL;
	}
	if (d->max_wr > MAX_DEPTH - 1 || d->max_cqe > MAX_CQE) {
		return fail(p, "max_wr is at most %d, max_cqe %d", MAX_DEPTH - 1, MAX_CQE);
	}
	f->devs++;
	return 0;
}
