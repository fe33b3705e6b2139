#include "fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const events[EVENTS] = {
    "open",       "query",     "port",       "alloc_pd",   "reg_mr", "create_cq", "create_qp",
    "init",       "rtr",       "rts",        "destroy_qp", "dereg_mr", "destroy_cq", "dealloc_pd",
    "close",      "post_send", "post_recv",  "send",       "recv",   "poll",      "poll_any",
};

static const char *const actions[ACTIONS] = {
    "nothing", "errno",    "status",  "drop",           "swallow",   "dup",       "delay",     "hold", "corrupt",
    "negative", "more",    "overrun", "kill_direction", "kill_rail", "kill_host", "port_down", "hang",
};

// The actions of each event: any other in a script is an error.
enum {
	FATES = 1 << DO_KILL_RAIL | 1 << DO_KILL_HOST | 1 << DO_PORT_DOWN | 1 << DO_NOTHING,
	POSTS = FATES | 1 << DO_ERRNO | 1 << DO_KILL_DIRECTION,
	POLLS = 1 << DO_NOTHING | 1 << DO_NEGATIVE | 1 << DO_MORE | 1 << DO_OVERRUN | 1 << DO_KILL_HOST,
	RECVS = 1 << DO_NOTHING | 1 << DO_STATUS | 1 << DO_SWALLOW | 1 << DO_DUP | 1 << DO_DELAY | 1 << DO_CORRUPT | 1 << DO_KILL_HOST,
	SENDS = RECVS | FATES | 1 << DO_DROP | 1 << DO_HOLD | 1 << DO_KILL_DIRECTION,
	CALLS = FATES | 1 << DO_ERRNO | 1 << DO_HANG,
};

static int can(int event) {
	switch (event) {
	case ON_POST_SEND:
	case ON_POST_RECV:
		return POSTS;
	case ON_SEND:
		return SENDS;
	case ON_RECV:
		return RECVS;
	case ON_POLL:
	case ON_POLL_ANY:
		return POLLS;
	}
	return CALLS;
}

struct parser {
	struct fabric *f;
	char *err;
	size_t n;
	int line;
};

static int fail(struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int fail(struct parser *p, const char *fmt, ...) {
	if (p->n > 0) {
		int k = snprintf(p->err, p->n, "line %d: ", p->line);
		va_list ap;
		va_start(ap, fmt);
		if (k >= 0 && (size_t)k < p->n) {
			vsnprintf(p->err + k, p->n - (size_t)k, fmt, ap);
		}
		va_end(ap);
	}
	return EINVAL;
}

static int lookup(const char *const *names, int n, const char *s, size_t len) {
	for (int i = 0; i < n; i++) {
		if (strlen(names[i]) == len && memcmp(names[i], s, len) == 0) {
			return i;
		}
	}
	return -1;
}

// find_device finds "name" or "host:name".
static int find_device(struct fabric *f, const char *s) {
	int host = -1;
	const char *colon = strchr(s, ':');
	if (colon != NULL) {
		host = atoi(s);
		s = colon + 1;
	}
	for (int i = 0; i < f->devs; i++) {
		if (strcmp(f->dev[i].name, s) == 0 && (host < 0 || f->dev[i].host == host)) {
			return i;
		}
	}
	return -1;
}

// value finds "key=…" among the words and marks it as used.
static char *value(char **words, int n, const char *key) {
	size_t len = strlen(key);
	for (int i = 0; i < n; i++) {
		if (words[i] != NULL && strncmp(words[i], key, len) == 0 && words[i][len] == '=') {
			char *v = words[i] + len + 1;
			words[i] = NULL;
			return v;
		}
	}
	return NULL;
}

// number is the value of "key=…" as a number. A word that is not a number stays
// unused, and leftover reports it.
static int64_t number(char **words, int n, const char *key, int64_t otherwise) {
	size_t len = strlen(key);
	for (int i = 0; i < n; i++) {
		if (words[i] != NULL && strncmp(words[i], key, len) == 0 && words[i][len] == '=') {
			char *end = NULL;
			int64_t v = strtoll(words[i] + len + 1, &end, 0);
			if (*end != 0 || end == words[i] + len + 1) {
				return otherwise;
			}
			words[i] = NULL;
			return v;
		}
	}
	return otherwise;
}

static int leftover(struct parser *p, char **words, int n) {
	for (int i = 0; i < n; i++) {
		if (words[i] != NULL) {
			return fail(p, "unknown or misspelt: %s", words[i]);
		}
	}
	return 0;
}

// add_gid writes entry i of a device's table.
static void add_gid(struct device *d, const uint8_t gid[16], uint32_t type) {
	if (d->gids < MAX_GIDS) {
		memcpy(d->gid[d->gids], gid, 16);
		d->gid_type[d->gids++] = type;
	}
}

static int make_gids(struct parser *p, struct device *d, char *order, const uint8_t ip[4]) {
	uint8_t ll[16] = {0xfe, 0x80}, v6[16] = {0xfe, 0x80}, v4[16] = {[10] = 0xff, [11] = 0xff};
	for (int i = 0; i < 8; i++) {
		ll[8 + i] = (uint8_t)(d->guid >> (56 - 8 * i));
		v6[8 + i] = (uint8_t)(ll[8 + i] ^ (i == 0 ? 2 : 0));
	}
	memcpy(v4 + 12, ip, 4);
	d->gids = 0;
	char *save = NULL;
	for (char *w = strtok_r(order, ",", &save); w != NULL; w = strtok_r(NULL, ",", &save)) {
		const uint8_t zero[16] = {0};
		const uint8_t *g = strcmp(w, "ll") == 0   ? ll
		                   : strcmp(w, "v4") == 0 ? v4
		                   : strcmp(w, "v6") == 0 ? v6
		                   : strcmp(w, "zero") == 0 ? zero
		                                            : NULL;
		if (g == NULL) {
			return fail(p, "gids are of ll, v4, v6, zero; not %s", w);
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
	return s == NULL ? 0 : strcmp(s, "round") == 0 ? -1 : atoi(s);
}

static int parse_device(struct parser *p, char **w, int n) {
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
	d->swtch = -1;
	d->lid = (uint16_t)(d->link == LINK_IB ? f->devs + 1 : 0);
	d->guid = (uint64_t)number(w, n, "guid", (int64_t)(0x0200000000000000ull + (uint64_t)f->devs + 1));
	s = value(w, n, "state");
	atomic_store(&d->state, s != NULL && strcmp(s, "down") == 0 ? RMV_PORT_DOWN : RMV_PORT_ACTIVE);
	int64_t mtu = number(w, n, "mtu", 4096);
	for (d->mtu = 1; d->mtu < 5 && 128 << d->mtu < mtu; d->mtu++) {
	}
	uint8_t ip[4] = {10, 77, (uint8_t)f->devs, 1};
	s = value(w, n, "ip");
	if (s != NULL && inet_pton(AF_INET, s, ip) != 1) {
		return fail(p, "ip %s is no IPv4 address", s);
	}
	char order[64];
	s = value(w, n, "gids");
	snprintf(order, sizeof order, "%s", s != NULL ? s : tb ? "ll,v4,v6" : d->link == LINK_ETH ? "ll,v4" : "ll");
	if (make_gids(p, d, order, ip) != 0) {
		return EINVAL;
	}
	d->rc = (int)number(w, n, "rc", !tb);
	d->max_qp = (int)number(w, n, "max_qp", tb ? 10 : MAX_QPS);
	d->told_qp = (int)number(w, n, "told_qp", tb ? d->max_qp + 1 : d->max_qp);
	d->max_mr = (int)number(w, n, "max_mr", tb ? 100 : MAX_MRS);
	d->max_pd = (int)number(w, n, "max_pd", tb ? 11 : MAX_PDS);
	d->max_cq = (int)number(w, n, "max_cq", MAX_CQS);
	d->max_cqe = (int)number(w, n, "max_cqe", MAX_CQE);
	d->max_wr = (int)number(w, n, "max_wr", MAX_DEPTH - 1);
	d->max_mr_size = (uint64_t)number(w, n, "max_mr_size", tb ? 16773120 : INT64_MAX);
	d->max_mem = (uint64_t)number(w, n, "max_mem", INT64_MAX);
	d->frames = (int)number(w, n, "frames", tb);
	d->grant_send = grant(value(w, n, "grant_send"));
	d->grant_recv = grant(value(w, n, "grant_recv"));
	d->silent_depth = (int)number(w, n, "silent_depth", 0);
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

static int parse_cable(struct parser *p, char **w, int n) {
	struct fabric *f = p->f;
	if (n < 2 || f->cables == MAX_CABLES) {
		return fail(p, "cable A B …, at most %d", MAX_CABLES);
	}
	int a = find_device(f, w[0]), b = find_device(f, w[1]);
	if (a < 0 || b < 0) {
		return fail(p, "no device %s", a < 0 ? w[0] : w[1]);
	}
	for (int i = 0; i < f->cables; i++) {
		struct cable *c = &f->cable[i];
		if ((c->a == a && c->b == b) || (c->a == b && c->b == a)) {
			if (n == 3 && (strcmp(w[2], "dead") == 0 || strcmp(w[2], "alive") == 0)) {
				atomic_store(&c->dead, strcmp(w[2], "dead") == 0);
				return 0;
			}
		}
		if (c->a == a || c->b == a || c->a == b || c->b == b) {
			return fail(p, "a port has one cable: %s or %s has one already", w[0], w[1]);
		}
	}
	struct cable *c = &f->cable[f->cables];
	memset(c, 0, sizeof *c);
	c->a = a, c->b = b;
	w[0] = w[1] = NULL;
	c->latency = (uint64_t)number(w, n, "latency_ns", 0);
	c->rate = (uint64_t)number(w, n, "mbps", 0) * 1000000;
	if (leftover(p, w, n) != 0) {
		return EINVAL;
	}
	f->cables++;
	return 0;
}

static int parse_switch(struct parser *p, char **w, int n) {
	for (int i = 0; i < n; i++) {
		int d = find_device(p->f, w[i]);
		if (d < 0) {
			return fail(p, "no device %s", w[i]);
		}
		p->f->dev[d].swtch = p->f->switches;
	}
	p->f->switches++;
	return 0;
}

static int parse_fault(struct parser *p, char **w, int n) {
	struct fabric *f = p->f;
	if (f->faults == MAX_FAULTS) {
		return fail(p, "at most %d faults", MAX_FAULTS);
	}
	struct fault *t = &f->fault[f->faults];
	memset(t, 0, sizeof *t);
	t->dev = t->peer = -1;
	const char *s = value(w, n, "device");
	if (s != NULL && (t->dev = find_device(f, s)) < 0) {
		return fail(p, "no device %s", s);
	}
	s = value(w, n, "peer");
	if (s != NULL && (t->peer = find_device(f, s)) < 0) {
		return fail(p, "no device %s", s);
	}
	t->host = (int)number(w, n, "host", -1);
	s = value(w, n, "on");
	t->event = s == NULL ? -1 : lookup(events, EVENTS, s, strlen(s));
	if (t->event < 0) {
		return fail(p, "on=EVENT: no event %s", s == NULL ? "" : s);
	}
	t->nth = (uint64_t)number(w, n, "nth", 1);
	s = value(w, n, "count");
	t->count = s == NULL ? 1 : strcmp(s, "all") == 0 ? UINT64_MAX : strtoull(s, NULL, 0);
	t->prob = (uint32_t)number(w, n, "prob", 0);
	t->seed = (uint32_t)number(w, n, "seed", 1);
	t->accept = (int)number(w, n, "accept", 0);
	t->vendor = (uint32_t)number(w, n, "vendor", 0);
	t->flush_first = (int)number(w, n, "flush_first", 0);
	s = value(w, n, "do");
	if (s == NULL) {
		return fail(p, "do=ACTION is missing");
	}
	const char *colon = strchr(s, ':');
	t->action = lookup(actions, ACTIONS, s, colon == NULL ? strlen(s) : (size_t)(colon - s));
	if (t->action < 0) {
		return fail(p, "no action %s", s);
	}
	if ((can(t->event) & 1 << t->action) == 0) {
		return fail(p, "%s cannot do %s", events[t->event], actions[t->action]);
	}
	t->arg = colon == NULL ? t->action == DO_NEGATIVE ? -1 : 1 : strtoll(colon + 1, NULL, 0);
	if (leftover(p, w, n) != 0) {
		return EINVAL;
	}
	f->faults++;
	atomic_fetch_add(&f->armed[t->event], 1);
	return 0;
}

static int parse_line(struct parser *p, char *line) {
	char *w[32];
	int n = 0;
	char *save = NULL, *hash = strchr(line, '#');
	if (hash != NULL) {
		*hash = 0;
	}
	for (char *t = strtok_r(line, " \t\r", &save); t != NULL; t = strtok_r(NULL, " \t\r", &save)) {
		if (n == 32) {
			return fail(p, "more than 32 words");
		}
		w[n++] = t;
	}
	if (n == 0) {
		return 0;
	}
	if (strcmp(w[0], "device") == 0) {
		return parse_device(p, w + 1, n - 1);
	}
	if (strcmp(w[0], "cable") == 0) {
		return parse_cable(p, w + 1, n - 1);
	}
	if (strcmp(w[0], "switch") == 0) {
		return parse_switch(p, w + 1, n - 1);
	}
	if (strcmp(w[0], "fault") == 0) {
		return parse_fault(p, w + 1, n - 1);
	}
	if (strcmp(w[0], "port") == 0 && n == 3) {
		int d = find_device(p->f, w[1]);
		if (d < 0) {
			return fail(p, "no device %s", w[1]);
		}
		atomic_store(&p->f->dev[d].state, strcmp(w[2], "down") == 0 ? RMV_PORT_DOWN : RMV_PORT_ACTIVE);
		return 0;
	}
	if (strcmp(w[0], "host") == 0 && n == 3) {
		static const char *const states[] = {"alive", "stopped", "dead"};
		int h = atoi(w[1]), s = lookup(states, 3, w[2], strlen(w[2]));
		if (h < 0 || h >= MAX_HOSTS || s < 0) {
			return fail(p, "host H alive|stopped|dead");
		}
		atomic_store(&p->f->host[h], s);
		return 0;
	}
	return fail(p, "unknown statement %s", w[0]);
}

int script_parse(struct fabric *f, const char *text, char *err, size_t n) {
	struct parser p = {.f = f, .err = err, .n = n};
	char *copy = strdup(text), *save = NULL;
	if (copy == NULL) {
		return ENOMEM;
	}
	int rc = 0;
	// Lines are split by hand so that empty ones count.
	for (char *line = copy; rc == 0 && line != NULL; line = save) {
		save = strchr(line, '\n');
		if (save != NULL) {
			*save++ = 0;
		}
		p.line++;
		rc = parse_line(&p, line);
	}
	free(copy);
	return rc;
}
