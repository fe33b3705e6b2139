// The interface of a compiled kernel library for the device and the runner, in
// plain C. The library exports msl_find, msl_table, msl_consts, msl_set_const,
// msl_clear_consts, msl_dispatch, msl_static_threadgroup and msl_error.
#ifndef MSL_ABI_H
#define MSL_ABI_H

enum { MSL_BUFFERS = 31 };

typedef enum msl_kind { // where a kernel's parameter comes from
    MK_BUF, // a buffer
    MK_TGMEM, // threadgroup memory of a length set at dispatch
    MK_TPIG, // thread position in grid
    MK_TGPIG, // threadgroup position in grid
    MK_TPITG, // thread position in threadgroup
    MK_TPTG, // threads per threadgroup
    MK_TPG, // threads per grid
    MK_TGPG, // threadgroups per grid
    MK_TIITG, // thread index in threadgroup
    MK_SGITG, // simdgroup index in threadgroup
    MK_TIISG, // thread index in simdgroup
    MK_SGPTG, // simdgroups per threadgroup
    MK_TPSG // threads per simdgroup
} msl_kind;

typedef struct msl_arg {
    int kind, index;
} msl_arg;

typedef struct msl_bind {
    void *buf[MSL_BUFFERS];
    unsigned long size[MSL_BUFFERS]; // bytes from buf to the end of the buffer
    void *tg[MSL_BUFFERS]; // filled by the runtime
    unsigned long tgsize[MSL_BUFFERS];
} msl_bind;

typedef struct msl_kernel {
    const char *name;
    int nargs;
    const msl_arg *args;
    void (*invoke)(const msl_arg *, const msl_bind *);
    unsigned long (*minsize)(int arg); // the smallest buffer that the parameter accepts
    int (*writable)(int arg); // the parameter is not const
    const int *needs; // ids of the function constants it uses, terminated by -1
} msl_kernel;

typedef struct msl_fconst {
    const char *name;
    int id; // or -1-id for the flag that tells whether the constant is defined
    int type; // MTLDataType
    void *p;
    unsigned long size;
} msl_fconst;

typedef struct msl_stats {
    unsigned long groups, threads;
    int divergent;
	unsigned long work; // basic blocks executed; 0 unless compiled to count them
} msl_stats;

#endif
