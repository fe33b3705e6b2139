// What the parts of the script's parser share. A statement is split into words;
// each function takes those it knows and marks them as used.
#ifndef SCRIPT_H
#define SCRIPT_H

#include "fake.h"

struct parser {
	struct fabric *f;
	char *err;
	size_t n;
	int line;
};

// fail writes the line and the reason and returns EINVAL.
int fail(struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int lookup(const char *const *names, int n, const char *s, size_t len); // -1: not there
char *value(char **words, int n, const char *key); // of "key=…", NULL without it
int64_t number(char **words, int n, const char *key, int64_t otherwise);
int leftover(struct parser *p, char **words, int n); // fails if a word is unused

// device_words.c
int parse_device(struct parser *p, char **w, int n);
// make_gids replaces the table of device number i by the words in order.
int make_gids(struct parser *p, struct device *d, int i, char *order);

#endif
