#include "math_bits.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 4096 }; // of each function; two libraries that differ do so in far more than 1 of 100

static void mix(uint64_t *h, double x) {
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	for (int i = 0; i < 64; i += 8) *h = (*h ^ (bits >> i & 0xff)) * 0x100000001b3u; // FNV-1a
}

uint64_t rm_math_bits(void) {
	uint64_t h = 0xcbf29ce484222325u, seed = 1;
	for (int i = 0; i < SAMPLES; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		volatile double u = (double)(seed >> 11) * 0x1p-53; // the compiler must not compute what the library should
		mix(&h, exp(u * -40.0));
		mix(&h, expf((float)(u * -40.0)));
		mix(&h, log1pf(expf((float)(u * 40.0 - 20.0)))); // softplus of a router
		mix(&h, cos(u * 1e6)); // of rotary positions
		mix(&h, sin(u * 1e6));
	}
	return h;
}
