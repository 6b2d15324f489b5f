/* What a pass is told, and what its layers work with. */
#ifndef ENGINE_LAYER_H
#define ENGINE_LAYER_H

#include "pass.h"

#define STAGES 5 /* of a layer, besides the attention of each span */
#define SHARES 4 /* of attention for each thread */

struct layer {
    struct matrix qkv, o, up, down;
    const uint16_t *attn_norm, *mlp_norm;
    const uint16_t *q_norm, *k_norm; /* NULL: none */
};

struct span {
    int32_t row, start, count;
};

struct pass {
    const struct layer *layers;
    uint16_t *const *keys; /* per layer (cache rows, G, slots, E) */
    uint16_t *const *values;
    const uint16_t *cos, *sin; /* (positions, E) */
    const struct span *spans;
    uint16_t *state; /* (rows, D), replaced by the result */
    char *scratch;
    int64_t slots;
    int32_t span_count, rows, first, stop, threads;
    int32_t hidden, heads, kv_heads, head_dim, feed_forward, window, activation;
    float eps, attention_scale, residual_scale;
};

/* What the threads share, and what each has for itself, in one stretch of scratch. */
struct room {
    float *attention; /* first: its counters must stay zero between calls */
    struct stage *stages;
    uint16_t *projected, *queries, *attended; /* (rows, H + 2G, E), (rows, H, E) twice */
    char *inner;                              /* rows of `feed_forward` codes */
    char *own;                                /* coded rows of one thread, then one row in bf16 */
    int64_t own_bytes;
};

/* One thread's view of the run. */
struct hand {
    const struct pass *pass;
    const struct room *room;
    const struct member *member;
    struct coded_rows own;
    uint16_t *row;
};

void run_layer(const struct hand *h, int index);

#endif
