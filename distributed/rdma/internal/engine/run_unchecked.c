//go:build rm_unchecked

// The loop without the check of completions, beside the real one, so that the
// cost of the check can be measured. Only builds with the tag rm_unchecked have
// it.
#define RMV_UNCHECKED
#define rme_run rme_run_unchecked
#define rme_begin rme_begin_unchecked
#define rme_reduced rme_reduced_unchecked
#define rme_need rme_need_unchecked
#include "run.c"
