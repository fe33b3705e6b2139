//go:build rm_unchecked

// The engine with the check of completions compiled out, beside the real one, to
// measure what the check costs. It is in no build without the tag rm_unchecked.
#define RM_VERBS_UNCHECKED
#define rm_run rm_run_unchecked
#define rm_begin rm_begin_unchecked
#define rm_reduced rm_reduced_unchecked
#define rm_need rm_need_unchecked
#include "engine.c"
