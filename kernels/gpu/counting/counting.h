// The device of package counting: the table of package gpu, and nothing that runs.
#ifndef RMC_COUNTING_H
#define RMC_COUNTING_H

#include <stddef.h>
#include <stdint.h>

#include "../device.h"

rmg_device *rmc_open(void);
void rmc_close(rmg_device *d);

#endif
