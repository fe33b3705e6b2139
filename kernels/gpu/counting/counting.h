// The device of package counting: the table of package gpu, and what it counts.
#ifndef RMC_COUNTING_H
#define RMC_COUNTING_H

#include <stddef.h>
#include <stdint.h>

#include "../device.h"

enum { RMC_KERNELS = 1024 };

// What was committed and awaited so far.
typedef struct {
	uint64_t dispatches, stages, light, buffers, waits;
	uint64_t of[RMC_KERNELS]; // dispatches by the number of their kernel
} rmc_counts;

typedef struct {
	rmg_device base; // first: package gpu has a pointer to it
	rmc_counts counts;
	rmc_counts encoded; // counts after the next commit
	int running;        // something was committed since the last wait
} rmc_device;

rmc_device *rmc_open(void);
void rmc_close(rmc_device *d);

#endif
