// Top-k: the k largest among many scores, by radix selection.
#include "ops.h"
#include "simd.h"

#include <math.h>
#include <stddef.h>

// sortable maps a float to an integer with the same order. Both zeros map to
// the same one.
static inline uint32_t sortable(float f) {
	uint32_t u = rm_float_to_bits(f + 0.0f);
	return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// of_key is the float that a key stands for.
static inline float of_key(uint32_t key) { return rm_bits_to_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// at_of is the index of the i-th score considered; at may be NULL for all
// scores.
static inline int64_t at_of(const int32_t *at, int64_t i) { return at ? at[i] : i; }

// kth finds the k-th largest key of n scores by radix selection, digit by digit
// from the top: among the keys that share the digits found so far, it counts
// the values of the next digit. It returns the rank of the result among the
// keys equal to it.
static inline int64_t kth(uint32_t *found, const float *score, const int32_t *at, int64_t n, int64_t k) {
	static const int shifts[3] = {21, 10, 0}, bits[3] = {11, 11, 10};
	uint32_t prefix = 0, known = 0; // digits found, and the mask of them
	int64_t wanted = k;             // rank among the keys with the prefix
	for (int round = 0; round < 3; round++) {
		uint32_t counts[2048] = {0}; // n entries, so indices of 31 bits
		uint32_t digits = (1u << bits[round]) - 1;
		for (int64_t i = 0; i < n; i++) {
			uint32_t key = sortable(score[at_of(at, i)]);
			if ((key & known) == prefix) counts[key >> shifts[round] & digits]++;
		}
		uint32_t digit = digits;
		while (counts[digit] < wanted) wanted -= counts[digit--];
		prefix |= digit << shifts[round];
		known |= digits << shifts[round];
	}
	*found = prefix;
	return wanted;
}

// choose writes the indices of the k largest of the n scores considered.
static inline void choose(int32_t *out, const float *score, const int32_t *at, int64_t n, int64_t k) {
	uint32_t least;
	int64_t ties = kth(&least, score, at, n, k);
	// All larger keys, and the first of those equal to it.
	for (int64_t i = 0; i < n; i++) {
		uint32_t key = sortable(score[at_of(at, i)]);
		if (key > least || (key == least && ties-- > 0)) *out++ = (int32_t)at_of(at, i);
	}
}

// With many scores, those above a bound are picked out first, at most this
// many.
#define PICKED 8192
// The smallest number of scores for which that pays.
#define MANY 2048
// The bound is taken from a sample: one score in this many, within these
// limits.
#define SAMPLE_OF 128
#define LEAST_SAMPLE 512
#define MOST_SAMPLE 4096

// pick lists the indices of all scores that are not below a bound, estimated so
// that somewhat more than k remain. It returns how many; 0 if the estimate was
// bad: fewer than k, or more than PICKED.
static int64_t pick(int32_t *at, const float *score, int64_t n, int64_t k) {
	int64_t m = n / SAMPLE_OF;
	m = m < LEAST_SAMPLE ? LEAST_SAMPLE : m > MOST_SAMPLE ? MOST_SAMPLE : m;
	// The expected rank of the k-th score in a sample of m of n, plus three
	// standard deviations.
	double rank = (double)k * (double)m / (double)n;
	int64_t r = (int64_t)(rank + 3 * sqrt(rank)) + 8;
	if (r >= m) return 0;
	float sample[MOST_SAMPLE];
	int64_t step = n / m;
	for (int64_t i = 0; i < m; i++) sample[i] = score[i * step];
	uint32_t key;
	kth(&key, sample, NULL, m, r);
	float bound = of_key(key);
	int64_t c = 0;
	for (int64_t i = 0; i < n;) {
		int64_t end = n - i < MANY ? n : i + MANY;
		if (c + (end - i) > PICKED) return 0;
		// A NaN is kept: its key may be above all others.
		for (; i < end; i++) {
			at[c] = (int32_t)i;
			c += !(score[i] < bound);
		}
	}
	return c < k ? 0 : c;
}

void rm_select(int32_t *out, const float *score, int64_t n, int64_t k) {
	int32_t at[PICKED];
	int64_t c = n >= MANY ? pick(at, score, n, k) : 0;
	if (c > 0) {
		choose(out, score, at, c, k);
	} else {
		choose(out, score, NULL, n, k);
	}
}

void rm_select_of(int32_t *out, const float *score, const int32_t *at, int64_t n, int64_t k) { choose(out, score, at, n, k); }

float rm_kth_score(const float *score, int64_t n, int64_t k) {
	int32_t at[PICKED];
	int64_t c = n >= MANY ? pick(at, score, n, k) : 0;
	uint32_t key;
	kth(&key, score, c > 0 ? at : NULL, c > 0 ? c : n, k);
	return of_key(key);
}
