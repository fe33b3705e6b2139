// Environment, errors, and the registry of live objects.
#import "sim.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t sim_mu = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t sim_cv = PTHREAD_COND_INITIALIZER;

const char *sim_env(const char *name, const char *otherwise) {
    const char *v = getenv(name);
    return v && *v ? v : otherwise;
}

unsigned long sim_env_size(const char *name, unsigned long otherwise) {
    const char *v = sim_env(name, NULL);
    return v ? strtoul(v, NULL, 0) : otherwise;
}

enum sim_mode sim_mode(void) {
    const char *m = sim_env("MTLSIM_MODE", "async");
    if (!strcmp(m, "async")) return SIM_ASYNC;
    if (!strcmp(m, "lazy")) return SIM_LAZY;
    if (!strcmp(m, "sync")) return SIM_SYNC;
    sim_die("MTLSIM_MODE=%s: it is async, lazy or sync", m);
}

static void version(NSInteger *major, NSInteger *minor) {
	const char *v = sim_env("MTLSIM_MACOS", "15.6");
	if (sscanf(v, "%ld.%ld", major, minor) != 2) sim_die("MTLSIM_MACOS=%s: it is a version like 15.6", v);
}

NSInteger sim_macos(void) {
	NSInteger major, minor;
	version(&major, &minor);
	return major;
}

void sim_since(NSInteger macos, const char *call) {
	if (sim_macos() < macos) sim_die("%s: macOS %ld does not have it, macOS %ld does", call, (long)sim_macos(), (long)macos);
}

@implementation NSProcessInfo (Version)
- (NSOperatingSystemVersion)operatingSystemVersion {
	NSOperatingSystemVersion v = {0, 0, 0};
	version(&v.majorVersion, &v.minorVersion);
	return v;
}
@end

// Interposes the C library's for everything that is linked with the device: the
// host code asks for the size of a page, 16 KiB on Apple silicon.
int getpagesize(void) { return (int)sim_env_size("MTLSIM_PAGE", SIM_PAGE); }

unsigned long sim_seed(void) { return sim_env_size("MTLSIM_SEED", 0); }

double sim_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void sim_charge(enum sim_cost cost) {
    const char *v = sim_env("MTLSIM_LATENCY", NULL);
    if (!v) return;
    double us[3];
    if (sscanf(v, "%lf,%lf,%lf", &us[SIM_WAKE], &us[SIM_COMMIT], &us[SIM_DISPATCH]) != 3)
        sim_die("MTLSIM_LATENCY=%s: it is the microseconds of a wake, a commit and a dispatch, such as 150,20,1", v);
    double until = sim_now() + us[cost] * 1e-6;
    while (sim_now() < until) {
    }
}

void sim_die(const char *format, ...) {
    char text[1024];
    va_list a;
    va_start(a, format);
    vsnprintf(text, sizeof text, format, a);
    va_end(a);
    fprintf(stderr, "metalsim: %s\n", text);
    fflush(stderr);
    abort();
}

NSError *sim_error(NSString *domain, NSInteger code, NSString *text, NSDictionary *more) {
    NSMutableDictionary *info = [NSMutableDictionary dictionaryWithDictionary:more];
    [info setObject:text forKey:NSLocalizedDescriptionKey];
    return [NSError errorWithDomain:domain code:code userInfo:info];
}

// ---- live objects: an open hash table from address to serial number ------

static pthread_mutex_t life_mu = PTHREAD_MUTEX_INITIALIZER;
static struct entry {
    void *object; // NULL: free
    unsigned long serial; // 0: deleted entry
    const char *name;
} *life;
static unsigned long room, used, serials;

static struct entry *slot(void *object) {
    unsigned long i = ((uintptr_t)object >> 4) * 0x9e3779b97f4a7c15ul % room;
    while (life[i].object && life[i].object != object) i = (i + 1) % room;
    return &life[i];
}

static bool alive(const char *name) {
    bool found = false;
    pthread_mutex_lock(&life_mu);
    for (unsigned long i = 0; i < room; i++) {
        found = found || (life[i].object && life[i].serial && strcmp(life[i].name, name) == 0);
    }
    pthread_mutex_unlock(&life_mu);
    return found;
}

// leaks reports what is alive at exit. The device's thread lets go of a command buffer
// only after it has woken those that wait for it, so that it gets a moment to do so.
static void leaks(void) {
    for (int ms = 0; ms < 2000 && alive("SimCommandBuffer"); ms++) usleep(1000);
    pthread_mutex_lock(&life_mu);
    for (unsigned long i = 0; i < room; i++) {
        if (life[i].object && life[i].serial) fprintf(stderr, "metalsim: still alive: %s %lu\n", life[i].name, life[i].serial);
    }
    pthread_mutex_unlock(&life_mu);
}

void sim_born(id object) {
    pthread_mutex_lock(&life_mu);
    if (used * 2 >= room) {
        struct entry *old = life;
        unsigned long n = room;
        if (!old && sim_env("MTLSIM_LEAKS", NULL)) atexit(leaks);
        room = n ? n * 2 : 1024;
        life = calloc(room, sizeof *life);
        used = 0;
        for (unsigned long i = 0; i < n; i++) {
            if (!old[i].object || !old[i].serial) continue;
            *slot(old[i].object) = old[i];
            used++;
        }
        free(old);
    }
    struct entry *e = slot((void *)object);
    if (!e->object) used++;
    e->object = (void *)object;
    e->serial = ++serials;
    e->name = object_getClassName(object);
    pthread_mutex_unlock(&life_mu);
}

void sim_died(id object) {
    pthread_mutex_lock(&life_mu);
    slot((void *)object)->serial = 0;
    pthread_mutex_unlock(&life_mu);
}

unsigned long sim_serial(id object) {
    pthread_mutex_lock(&life_mu);
    unsigned long s = room ? slot((void *)object)->serial : 0;
    pthread_mutex_unlock(&life_mu);
    return s;
}
