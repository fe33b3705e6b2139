#pragma once
#include <stdint.h>
typedef long time_t;
struct timespec {
    time_t tv_sec;
    long tv_nsec;
};
typedef enum { CLOCK_REALTIME = 0, CLOCK_MONOTONIC = 6, CLOCK_UPTIME_RAW = 8 } clockid_t;
int clock_gettime(clockid_t, struct timespec *);
uint64_t clock_gettime_nsec_np(clockid_t);
int nanosleep(const struct timespec *, struct timespec *);
