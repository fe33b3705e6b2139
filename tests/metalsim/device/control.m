// What a test may ask of the device and do to it, and the model of residency: macOS
// unwires the memory of a set after about a second without use or request (measured
// in github.com/ggml-org/llama.cpp/pull/10119), and then wires it again for the next
// command buffer. Here that second passes when a test says so.
#import "sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static SimResidencySet **sets;
static int setCount, setRoom;

void sim_set_born(SimResidencySet *s) {
    if (setCount == setRoom) {
        setRoom = setRoom ? setRoom * 2 : 8;
        sets = realloc(sets, (size_t)setRoom * sizeof *sets);
    }
    sets[setCount++] = s;
}

void sim_set_died(SimResidencySet *s) {
    for (int i = 0; i < setCount; i++) {
        if (sets[i] == s) sets[i--] = sets[--setCount];
    }
}

// The counters: bytes "wired" by requests and by command buffers, "requests" for
// residency, times that the memory of a set has "expired"; with a watchdog, the
// basic blocks executed by the "longest" command buffer.
static struct counter {
    const char *what;
    uint64_t n;
} counters[] = {{"wired", 0}, {"requests", 0}, {"expired", 0}, {"longest", 0}};

static struct counter *counter(const char *what) {
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        if (!strcmp(counters[i].what, what)) return &counters[i];
    }
    sim_die("sim_count: there is no %s", what);
}

void sim_counted(const char *what, uint64_t n) { counter(what)->n += n; }

void sim_counted_most(const char *what, uint64_t n) {
	struct counter *c = counter(what);
	if (n > c->n) c->n = n;
}

uint64_t sim_count(const char *what) {
    pthread_mutex_lock(&sim_mu);
    uint64_t n = counter(what)->n;
    pthread_mutex_unlock(&sim_mu);
    return n;
}

// sim_idle ends a period: the memory of each set that was neither requested
// nor used in it is unwired.
void sim_idle(void) {
    pthread_mutex_lock(&sim_mu);
    for (int i = 0; i < setCount; i++) {
        if (sets[i]->wired && !sets[i]->touched) {
            sets[i]->wired = NO;
            sim_counted("expired", 1);
        }
        sets[i]->touched = NO;
    }
    pthread_mutex_unlock(&sim_mu);
}
