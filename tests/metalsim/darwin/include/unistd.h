#pragma once
#include <stddef.h>
typedef unsigned useconds_t;
int usleep(useconds_t);
int getpagesize(void);
long sysconf(int);
enum { _SC_PAGESIZE = 29 };
