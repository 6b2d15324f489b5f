/* One block of slots against some queries: what attention_block.c offers to attention.c. */
#ifndef ENGINE_ATTENTION_BLOCK_H
#define ENGINE_ATTENTION_BLOCK_H

#include <stdint.h>

#define BLOCK 64  /* slots scored at once: four vectors */
#define LANES 16
#define BATCH 48  /* queries that meet a table in turn */
#define MOST_E 256

/* What one query has seen of some slots: `sum` and `acc` are relative to 2^max. The dims of `acc`
 * stand in the order that `fill_values` leaves them in. */
struct partial {
    float max, sum;
    float unused[14];
    float acc[]; /* E floats */
};

/* The blocks of one work item, transposed keys and interleaved values; a thread's own. */
struct tables {
    uint32_t keys[MOST_E / 2 * BLOCK];
    uint32_t values[BLOCK / 2 * MOST_E];
};

/* What some queries see of the block in `tables`: slots low ... high - 1. */
struct part {
    int low, high;
    int fresh;                            /* these are the first slots of their chunk */
    const char *next_keys, *next_values; /* of the next block, or null */
};

/* Queries that are taken together. */
struct batch {
    int queries;
    const uint32_t *q[BATCH];
    struct partial *seen[BATCH];
};

int64_t partial_floats(int E);

/* Lay out the first `count` slots of a block's keys, (BLOCK, E) from `rows` on; the rest is 0. */
void fill_keys(struct tables *tables, const uint16_t *rows, int count, int E);

/* Lay out slots low ... high - 1 of a block's values; only pairs that hold one of them are written,
 * and what such a pair holds besides is 0. */
void fill_values(struct tables *tables, const uint16_t *rows, int low, int high, int E);

/* Every query of the batch adds its part of the block in `tables` to what it has seen; `scale`
 * multiplies the scores. */
void attend_batch(const struct batch *batch, const struct tables *tables, const struct part *part,
                  int E, float scale);

/* Add what a query saw in a later chunk. */
void fold(struct partial *into, const struct partial *later, int E);

/* The weighted mean in bf16, dims in their own order. */
void finish(const struct partial *seen, int E, uint16_t *out);

#endif
