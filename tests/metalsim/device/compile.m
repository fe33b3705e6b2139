// newLibraryWithSource: calls the compiler script and keeps the library in the
// cache beside it, under a hash of the source, its macros and the flags.
// Processes share the cache. A lock per library makes one of them compile while
// the others wait. All compiler output goes to a private folder first: when a
// process is killed its lock is released while its compiler may still be
// writing.
#define _GNU_SOURCE
#import "sim.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void mix(uint64_t h[2], const char *s) {
    for (;; s++) {
        h[0] = (h[0] ^ (unsigned char)*s) * 1099511628211ull;
        h[1] = (h[1] + (unsigned char)*s) * 6364136223846793005ull + (h[0] >> 29);
        if (!*s) return;
    }
}

static BOOL put(NSString *path, NSString *text) {
    NSString *tmp = [NSString stringWithFormat:@"%@.%d.tmp", path, (int)getpid()];
    return [text writeToFile:tmp atomically:NO encoding:NSUTF8StringEncoding error:NULL] && rename([tmp UTF8String], [path UTF8String]) == 0;
}

// lock_file returns an open file that holds an exclusive lock on path; closing it
// releases the lock.
static int lock_file(NSString *path) {
    int fd = open([path UTF8String], O_RDWR | O_CREAT | O_CLOEXEC, 0600), rc = -1;
    if (fd >= 0) {
        while ((rc = flock(fd, LOCK_EX)) < 0 && errno == EINTR) {
        }
    }
    if (rc) sim_die("newLibraryWithSource: cannot lock %s: %s", [path UTF8String], strerror(errno));
    return fd;
}

// call runs the compiler script with its output in log. A preloaded sanitizer
// library is not passed on to the compiler.
static int call(NSString *script, NSArray *args, NSString *log) {
    char *argv[64];
    int n = 0;
    argv[n++] = (char *)[script UTF8String];
    for (NSString *a in args) {
        if (n < 63) argv[n++] = (char *)[a UTF8String];
    }
    argv[n] = NULL;
    size_t vars = 0;
    while (environ[vars]) vars++;
    char **env = calloc(vars + 1, sizeof *env);
    for (size_t i = 0, m = 0; i < vars; i++) {
        if (strncmp(environ[i], "LD_PRELOAD=", 11)) env[m++] = environ[i];
    }
    posix_spawn_file_actions_t io;
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_addopen(&io, 1, [log UTF8String], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&io, 1, 2);
    pid_t child;
    int rc = posix_spawn(&child, argv[0], &io, NULL, argv, env), status = -1;
    posix_spawn_file_actions_destroy(&io);
    free(env);
    if (rc) sim_die("newLibraryWithSource: %s: %s", argv[0], strerror(rc));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static int load(SimLibrary *l, const char *file) {
    l->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) return -1;
    const struct {
        const char *name;
        void **to;
    } symbols[] = {
        { "msl_find", (void **)&l->find },
        { "msl_table", (void **)&l->table },
        { "msl_consts", (void **)&l->constants },
        { "msl_set_const", (void **)&l->setConstant },
        { "msl_clear_consts", (void **)&l->clearConstants },
        { "msl_dispatch", (void **)&l->dispatch },
        { "msl_static_threadgroup", (void **)&l->staticThreadgroup },
        { "msl_error", (void **)&l->errorText },
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        if (!(*symbols[i].to = dlsym(l->handle, symbols[i].name))) return -1;
    }
    return 0;
}

// prelude holds the macros of the options, so that they never pass through a
// shell.
static NSString *prelude(MTLCompileOptions *o) {
    NSMutableString *s = [NSMutableString string];
    MTLLanguageVersion v = o.languageVersion;
    if (v < MTLLanguageVersion2_4 || v > MTLLanguageVersion3_2) sim_die("newLibraryWithSource: language version %lx", (unsigned long)v);
    [s appendFormat:@"#define __METAL_VERSION__ %lu\n", (unsigned long)((v >> 16) * 100 + (v & 0xffff) * 10)];
    if (o.mathMode == MTLMathModeFast) [s appendString:@"#define __FAST_MATH__ 1\n"];
    for (NSString *k in [[o.preprocessorMacros allKeys] sortedArrayUsingSelector:@selector(compare:)])
        [s appendFormat:@"#define %@ %@\n", k, [o.preprocessorMacros objectForKey:k]];
    return s;
}

// compile makes base.so from the source and returns nil or the compiler's
// messages. The caller holds the lock of base. Source and macros stay at
// base.metal and base.h, which diagnostics, debuggers and the runner refer to.
static NSString *compile(NSString *home, NSString *base, NSString *source, NSString *defines, const char *flags) {
    NSString *in = [base stringByAppendingString:@".metal"], *def = [base stringByAppendingString:@".h"];
    char folder[4096];
    snprintf(folder, sizeof folder, "%s.XXXXXX", [base UTF8String]);
    if (!mkdtemp(folder) || !put(in, source) || !put(def, defines)) sim_die("newLibraryWithSource: cannot write %s: %s", [in UTF8String], strerror(errno));
    NSString *out = [NSString stringWithFormat:@"%s/out.so", folder], *log = [NSString stringWithFormat:@"%s/log", folder];
    NSMutableArray *args = [NSMutableArray arrayWithObjects:out, in, def, nil];
    for (NSString *f in [[NSString stringWithUTF8String:flags] componentsSeparatedByString:@" "]) {
        if ([f length]) [args addObject:f];
    }
    NSString *complaint = nil;
    if (call([home stringByAppendingPathComponent:@"mslcc"], args, log)) {
        complaint = [NSString stringWithContentsOfFile:log encoding:NSUTF8StringEncoding error:NULL] ?: @"the compiler failed";
    } else if (rename([out UTF8String], [[base stringByAppendingString:@".so"] UTF8String])) {
        sim_die("newLibraryWithSource: the compiler left no %s: %s", [out UTF8String], strerror(errno));
    }
    const char *left[] = { "out.so", "out.cpp", "log" };
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) unlink([[NSString stringWithFormat:@"%s/%s", folder, left[i]] UTF8String]);
    rmdir(folder);
    return complaint;
}

SimLibrary *sim_compile(NSString *source, MTLCompileOptions *options, NSError **error) {
    NSString *home = [NSString stringWithUTF8String:sim_env("MSLSIM_HOME", "")];
    if ([home length] == 0) sim_die("newLibraryWithSource: MSLSIM_HOME is not set; see tests/metalsim/env.sh");
    MTLCompileOptions *o = options ?: [[[MTLCompileOptions alloc] init] autorelease];
    NSString *defines = prelude(o);
    const char *flags = sim_env("MSLSIM_FLAGS", "");
	if (sim_watchdog()) flags = [[NSString stringWithFormat:@"%s -fsanitize-coverage=trace-pc", flags] UTF8String];
	uint64_t h[2] = { 1469598103934665603ull, 0 };
    mix(h, [source UTF8String]);
    mix(h, [defines UTF8String]);
    mix(h, flags);
    mix(h, sim_env("MSL_O", ""));
    mix(h, sim_env("MSL_ARCH", ""));
    NSString *folder = [home stringByAppendingPathComponent:@"lib"];
    mkdir([folder UTF8String], 0700);
    NSString *base = [folder stringByAppendingFormat:@"/%016llx%016llx", (unsigned long long)h[0], (unsigned long long)h[1]];
    NSString *so = [base stringByAppendingString:@".so"];
    int lock = lock_file([base stringByAppendingString:@".lock"]);
    NSString *complaint = access([so UTF8String], R_OK) ? compile(home, base, source, defines, flags) : nil;
    close(lock);
    if (complaint) {
        if (error) *error = sim_error(MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, complaint, nil);
        return nil;
    }
    SimLibrary *l = [[SimLibrary alloc] init];
    l->path = [base copy];
    if (load(l, [so UTF8String])) sim_die("newLibraryWithSource: %s: %s", [so UTF8String], dlerror());
    return l;
}
