#include "script.h"

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
    "nothing",
    "errno",
    "status",
    "drop",
    "swallow",
    "dup",
    "delay",
    "hold",
    "corrupt",
    "negative",
    "more",
    "overrun",
    "kill_direction",
    "kill_rail",
    "kill_host",
    "port_down",
    "hang",
    "crash",
    "length",
};

// The actions of each event: any other in a script is an error.
enum {
	FATES = 1 << DO_KILL_RAIL | 1 << DO_KILL_HOST | 1 << DO_PORT_DOWN | 1 << DO_NOTHING,
	POSTS = FATES | 1 << DO_ERRNO | 1 << DO_KILL_DIRECTION | 1 << DO_CRASH,
	POLLS = 1 << DO_NOTHING | 1 << DO_NEGATIVE | 1 << DO_MORE | 1 << DO_OVERRUN | 1 << DO_KILL_HOST,
	RECVS = 1 << DO_NOTHING | 1 << DO_STATUS | 1 << DO_SWALLOW | 1 << DO_DUP | 1 << DO_DELAY | 1 << DO_CORRUPT | 1 << DO_KILL_HOST |
	        1 << DO_LENGTH,
	SENDS = (RECVS & ~(1 << DO_LENGTH)) | FATES | 1 << DO_DROP | 1 << DO_HOLD | 1 << DO_KILL_DIRECTION,
	CALLS = FATES | 1 << DO_ERRNO | 1 << DO_HANG | 1 << DO_CRASH,
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

int fail(struct parser *p, const char *fmt, ...) {
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

int lookup(const char *const *names, int n, const char *s, size_t len) {
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
char *value(char **words, int n, const char *key) {
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
int64_t number(char **words, int n, const char *key, int64_t otherwise) {
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

int leftover(struct parser *p, char **words, int n) {
	for (int i = 0; i < n; i++) {
		if (words[i] != NULL) {
			return fail(p, "unknown or misspelt: %s", words[i]);
		}
	}
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
				cable_set(f, c, strcmp(w[2], "dead") == 0);
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
	t->above = number(w, n, "above", -1);
	if (t->above >= 0 && t->event != ON_SEND && t->event != ON_RECV) {
		return fail(p, "above=BYTES is of messages: on=send, on=recv");
	}
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
		port_set(p->f, d, strcmp(w[2], "down") == 0 ? RMV_PORT_DOWN : RMV_PORT_ACTIVE);
		return 0;
	}
	if (strcmp(w[0], "gids") == 0 && n == 3) {
		int d = find_device(p->f, w[1]);
		if (d < 0) {
			return fail(p, "no device %s", w[1]);
		}
		return make_gids(p, &p->f->dev[d], d, w[2]);
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
