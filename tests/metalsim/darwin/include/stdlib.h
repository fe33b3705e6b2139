// C functions that the host code may use, for the syntax check only.
#pragma once
#include <stddef.h>
void *malloc(size_t);
void *calloc(size_t, size_t);
void *realloc(void *, size_t);
void free(void *);
void abort(void) __attribute__((noreturn));
char *getenv(const char *);
long strtol(const char *, char **, int);
unsigned long strtoul(const char *, char **, int);
int posix_memalign(void **, size_t, size_t);
