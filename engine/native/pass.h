/* What the files of the pass (gemm.c, elementwise.c, team.c, pass.c) give each other.
 *
 * bf16 is uint16_t. Widths are multiples of 64, head widths of 32. Every function of a row gives it
 * the same bits in any company: nothing here sums over rows or depends on their number.
 */
#ifndef ENGINE_PASS_H
#define ENGINE_PASS_H

#include "native.h"

#include <immintrin.h>
#include <stdatomic.h>
#include <stddef.h>

#define TILE_OUTPUTS 32
#define BLOCK_INPUTS 64 /* weights, and numbers of a row, that share one scale */
#define BAND 64         /* rows whose results for a tile are held at once */
#define INLINE static inline __attribute__((always_inline))

/* NF4 in tiles of 32 outputs (nf4_tiles.py); absmax is (wide / 64, stride), bias may be NULL. */
struct matrix {
    const uint8_t *tiles;
    const uint16_t *absmax;
    const uint16_t *bias;
    int64_t wide, height, absmax_stride;
};

/* Rows as 8-bit codes: x = code * scale, a scale for every 64 of them. `shift` takes back what the
 * unsigned weights add to each block's sum. */
struct coded_rows {
    int8_t *codes;  /* (T, wide) */
    float *scales;  /* (T, wide / 64) */
    int32_t *shift; /* (T, wide / 64) */
};

INLINE int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
INLINE int64_t tiles_of(const struct matrix *m)
{
    return (m->height + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
}

int64_t coded_bytes(int64_t rows, int64_t wide);
struct coded_rows coded_at(char *memory, int64_t rows, int64_t wide);
void encode_block(const uint16_t *x, const struct coded_rows *to, int64_t block);
void encode_row(const uint16_t *x, int64_t row, int64_t wide, const struct coded_rows *to);

/* Tells the memory that a tile will be read soon. */
void fetch_tile(const struct matrix *m, int64_t tile);
/* out[r * stride + 0 ... 31] = x W^T + b in bf16, of the tile's outputs that exist; `out` stands at
 * the first of them. Any number of rows, from `first_row` of `x` on. `then` is the tile that the
 * caller reads next, fetched while this one is multiplied. */
void put_tile(const struct matrix *m, const struct coded_rows *x, int64_t first_row, int64_t rows,
              int64_t tile, int64_t then, uint16_t *out, int64_t stride);
/* The same, rounded, then added: out + alpha * result. The height is a multiple of 32. */
void add_tile(const struct matrix *m, const struct coded_rows *x, int64_t rows, int64_t tile,
              int64_t then, uint16_t *out, int64_t stride, float alpha);

enum activation { SILU = 0, GELU_TANH = 1 };

void norm_row(const uint16_t *x, const uint16_t *weight, int64_t wide, float eps, uint16_t *out);
void rotate_head(const uint16_t *x, const uint16_t *cos, const uint16_t *sin, int E, uint16_t *out);
void activate(const uint16_t *gate, const uint16_t *up, int64_t count, enum activation kind,
              uint16_t *out);
void add_scaled(uint16_t *to, const uint16_t *x, int64_t count, float alpha);

/* A team of threads; all of its members run `work` with the same `job`. */
struct member {
    int thread, threads;
};
typedef void team_work(void *job, const struct member *member);
void run_team(team_work *work, void *job, int threads);

/* A stage is a number of items. Whoever is free takes the next few, and it is over when all are
 * done, not when all threads have come by: one that the system keeps from running holds up the
 * others only if it has items in hand, and finds none left when it comes late. */
struct stage {
    atomic_long next, done;
    char unshared[48];
};
/* A thread's way through a stage: the items in hand, and those after, to fetch ahead. */
struct turn {
    struct stage *stage;
    int64_t total, chunk, now, next;
};
struct turn begin(struct stage *stage, int64_t total, int threads);
/* The items in hand are done; takes up the next ones. */
void advance(struct turn *turn);
void wait_until_over(struct stage *stage, int64_t total);
INLINE int has_items(const struct turn *t) { return t->now < t->total; }
INLINE int64_t end_of(const struct turn *t)
{
    return t->now + t->chunk < t->total ? t->now + t->chunk : t->total;
}
/* The item that this thread takes up after `item`; the same one where there is no other. */
INLINE int64_t item_after(const struct turn *t, int64_t item)
{
    int64_t next = item + 1 < end_of(t) ? item + 1 : t->next;
    return next < t->total ? next : item;
}
INLINE int nothing_left(struct stage *stage, int64_t total)
{
    return atomic_load_explicit(&stage->next, memory_order_relaxed) >= total;
}

INLINE __m512 wide_of(__m256i bits)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
INLINE __m512 load_bf16(const uint16_t *p) { return wide_of(_mm256_loadu_si256((const void *)p)); }
INLINE void store_bf16(uint16_t *p, __m512 x)
{
    _mm256_storeu_si256((void *)p, (__m256i)_mm512_cvtneps_pbh(x));
}

#endif
