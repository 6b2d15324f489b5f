/* What the C kernels offer to engine/native's Python and to each other. */
#ifndef ENGINE_NATIVE_H
#define ENGINE_NATIVE_H

#include <stdint.h>

/* attention.c: needs AVX512-BF16 (compile with -O3 -ffp-contract=off and the processor's flags). */

#define ATTEND_HEADS 64 /* most kv heads; so many counters stand at the front of `scratch` */

/* bf16 is uint16_t. E is a multiple of 32, at most 256; H a multiple of G; G at most 64. */
struct attend_args {
    const uint16_t *q; /* (T, H, E) contiguous; query t stands at position start + t */
    const uint16_t *k; /* (G, S, E) of one cache row: heads head_stride elements apart */
    const uint16_t *v; /* the same */
    uint16_t *out;     /* (T, H, E) contiguous */
    float *scratch;    /* attend_scratch() floats on a 64-byte border, zero before the first call */
    int64_t head_stride;
    int32_t T; /* 1 or more, without limit: from 17 on rows are shared out instead of slots */
    int32_t start;
    int32_t window; /* slots that a query sees, its own among them; 0: all */
    int32_t H, G, E;
    float scale;
};

/* Floats of scratch that suffice for every T and start within `slots` on this many threads. */
int64_t attend_scratch(int H, int G, int E, int slots, int threads);

/* Every thread of a parallel region calls this once with its number; `out` is complete when all
 * have returned (the caller's barrier or join). Never waits. */
void attend(const struct attend_args *a, int thread, int threads);

#endif
