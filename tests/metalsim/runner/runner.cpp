// runner DUMP...: replays dispatches that the device wrote, under a sanitizer
// with which the runner and the kernels are built. runner -l DUMP... lists the
// required libraries. A library BASE is loaded from BASE.tsan.so.
#include "../msl/msl_abi.h"
#include "dump.h"
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

struct constant {
    std::string name;
    uint32_t index, size;
    char value[16];
};

struct dump {
    std::string library, kernel;
    std::vector<constant> constants;
    uint32_t grid[3], threadgroup[3], exact;
    std::vector<std::vector<char>> regions;
    int32_t region[MSL_BUFFERS];
    uint64_t offset[MSL_BUFFERS], tgsize[MSL_BUFFERS];
};

static FILE *in;
static const char *file;

[[noreturn]] static void bad(const char *what) {
    fprintf(stderr, "runner: %s: %s\n", file, what);
    exit(2);
}

static void bytes(void *to, size_t n) {
    if (n && fread(to, n, 1, in) != 1) bad("it ends too early");
}
template <class T> static T number() {
    T v;
    bytes(&v, sizeof v);
    return v;
}
static std::string text() {
    std::string s(number<uint32_t>(), ' ');
    bytes(s.data(), s.size());
    return s;
}

static dump load(const char *path) {
    file = path;
    in = fopen(path, "rb");
    if (!in) bad("cannot be opened");
    char magic[8];
    bytes(magic, 8);
    if (memcmp(magic, MSL_DUMP_MAGIC, 8)) bad("is no dispatch");
    dump d;
    d.library = text();
    d.kernel = text();
    d.constants.resize(number<uint32_t>());
    for (constant &c : d.constants) {
        c.name = text();
        c.index = number<uint32_t>();
        c.size = number<uint32_t>();
        bytes(c.value, sizeof c.value);
    }
    bytes(d.grid, sizeof d.grid);
    bytes(d.threadgroup, sizeof d.threadgroup);
    d.exact = number<uint32_t>();
    d.regions.resize(number<uint32_t>());
    for (std::vector<char> &r : d.regions) {
        r.resize(number<uint64_t>());
        bytes(r.data(), r.size());
    }
    for (int i = 0; i < MSL_BUFFERS; i++) {
        d.region[i] = number<int32_t>();
        d.offset[i] = number<uint64_t>();
        d.tgsize[i] = number<uint64_t>();
    }
    fclose(in);
    return d;
}

struct library {
    void *handle;
    template <class F> F *get(const char *name) const {
        void *p = dlsym(handle, name);
        if (!p) bad(dlerror());
        return reinterpret_cast<F *>(p);
    }
};

static int replay(const dump &d, unsigned long seed) {
    library lib{ dlopen((d.library + ".tsan.so").c_str(), RTLD_NOW | RTLD_LOCAL) };
    if (!lib.handle) bad(dlerror());
    const msl_kernel *k = lib.get<const msl_kernel *(const char *)>("msl_find")(d.kernel.c_str());
    if (!k) bad("the library lacks the kernel");
    lib.get<void()>("msl_clear_consts")();
    for (const constant &c : d.constants)
        lib.get<int(const char *, int, const void *, unsigned long)>("msl_set_const")(c.name.empty() ? nullptr : c.name.c_str(), (int)c.index, c.value, c.size);
    std::vector<std::vector<char>> memory = d.regions; // each run begins with the same data
    msl_bind bind{};
    for (int i = 0; i < MSL_BUFFERS; i++) {
        bind.tgsize[i] = d.tgsize[i];
        if (d.region[i] < 0) continue;
        std::vector<char> &r = memory.at((size_t)d.region[i]);
        bind.buf[i] = r.data() + d.offset[i];
        bind.size[i] = r.size() - d.offset[i];
    }
    int rc = lib.get<int(const msl_kernel *, msl_bind *, const unsigned *, const unsigned *, int, unsigned long, msl_stats *)>("msl_dispatch")(
        k, &bind, d.grid, d.threadgroup, (int)d.exact, seed, nullptr);
    if (rc) fprintf(stderr, "runner: %s: %s\n", d.kernel.c_str(), lib.get<const char *()>("msl_error")());
    return rc;
}

int main(int argc, char **argv) {
    bool list = argc > 1 && !strcmp(argv[1], "-l");
    std::vector<std::string> libraries;
    int failed = 0;
    for (int i = list ? 2 : 1; i < argc; i++) {
        dump d = load(argv[i]);
        if (list) {
            if (std::find(libraries.begin(), libraries.end(), d.library) == libraries.end()) libraries.push_back(d.library);
            continue;
        }
        fprintf(stderr, "runner: %s, grid %u %u %u, threadgroup %u %u %u\n", d.kernel.c_str(), d.grid[0], d.grid[1], d.grid[2], d.threadgroup[0],
                d.threadgroup[1], d.threadgroup[2]);
        for (unsigned long seed : { 0ul, 7ul }) failed |= replay(d, seed) != 0;
    }
    for (const std::string &l : libraries) printf("%s\n", l.c_str());
    return failed;
}
