//go:build rm_unchecked

// The loop with the check of completions compiled out, next to the real one, to
// measure what the check costs. Only builds with the tag rm_unchecked have it.
#define RMV_UNCHECKED
#define rme_run rme_run_unchecked
#define rme_begin rme_begin_unchecked
#define rme_reduced rme_reduced_unchecked
#define rme_need rme_need_unchecked
#include "run.c"
