/* One block of slots against some queries, for CPUs with AVX512-BF16: scores, weights, sums.
 *
 * Keys are transposed and values interleaved once per block, so that one instruction multiplies a
 * query with 16 slots (or 16 dims) and nothing is summed across lanes. A query's sums are made in
 * one order, whatever other queries its tile has.
 */
#include "attention_block.h"

#include <immintrin.h>
#include <math.h>

#define TILE 6 /* queries whose sums, times four vectors, stay in registers */
#define LOG2_E 1.44269504f
#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define UNROLL _Pragma("GCC unroll 8")

typedef __m512 f32x16;

int64_t partial_floats(int E) { return 16 + E; }

/* c[query][lane] = keep[query] . c[query][lane] (zero without keep) + the sum over pairs of
 * a[query][pair] . b[pair][lane]; `vectors` columns of b. Meanwhile `ahead` is fetched. */
static inline __attribute__((always_inline)) void multiply(
    const int queries, const int vectors, const uint32_t *const *a, const uint32_t *b,
    int stride, int pairs, float *const *c, const float *keep, const char *ahead)
{
    f32x16 sum[TILE][4];
    UNROLL for (int q = 0; q < queries; q++)
    {
        UNROLL for (int v = 0; v < vectors; v++)
            sum[q][v] = keep ? _mm512_mul_ps(_mm512_loadu_ps(c[q] + v * LANES),
                                             _mm512_set1_ps(keep[q]))
                             : _mm512_setzero_ps();
    }
    for (int i = 0; i < pairs; i++) {
        __m512bh column[4];
        if (ahead)
            UNROLL for (int line = 0; line < 4; line++)
                _mm_prefetch(ahead + (i * 4 + line) * 64, _MM_HINT_T1);
        UNROLL for (int v = 0; v < vectors; v++)
            column[v] = (__m512bh)_mm512_loadu_si512(b + (int64_t)i * stride + v * LANES);
        UNROLL for (int q = 0; q < queries; q++)
        {
            __m512bh pair = (__m512bh)_mm512_set1_epi32((int)a[q][i]);
            UNROLL for (int v = 0; v < vectors; v++)
                sum[q][v] = _mm512_dpbf16_ps(sum[q][v], pair, column[v]);
        }
    }
    UNROLL for (int q = 0; q < queries; q++)
    {
        UNROLL for (int v = 0; v < vectors; v++)
            _mm512_storeu_ps(c[q] + v * LANES, sum[q][v]);
    }
}

#define MULTIPLY(QUERIES)                                                                       \
    static __attribute__((noinline)) void multiply_##QUERIES(                                   \
        int vectors, const uint32_t *const *a, const uint32_t *b, int stride, int pairs,        \
        float *const *c, const float *keep, const char *ahead)                                  \
    {                                                                                           \
        if (vectors == 4)                                                                       \
            multiply(QUERIES, 4, a, b, stride, pairs, c, keep, ahead);                          \
        else if (vectors == 2)                                                                  \
            multiply(QUERIES, 2, a, b, stride, pairs, c, keep, ahead);                          \
        else                                                                                    \
            multiply(QUERIES, 1, a, b, stride, pairs, c, keep, ahead);                          \
    }
MULTIPLY(1) MULTIPLY(2) MULTIPLY(3) MULTIPLY(4) MULTIPLY(5) MULTIPLY(6)

typedef void multiplier(int, const uint32_t *const *, const uint32_t *, int, int, float *const *,
                        const float *, const char *);
static multiplier *const multipliers[TILE + 1] = {0,          multiply_1, multiply_2, multiply_3,
                                                  multiply_4, multiply_5, multiply_6};

/* 16 slots of E values, as (E / 2) pairs of 16 slots; slots from `count` on read as zero. */
static void transpose(const uint16_t *rows, int count, int E, uint32_t *out)
{
    for (int at = 0; at < E; at += 32) {
        __m512i r[16], t[16];
        for (int s = 0; s < 16; s++)
            r[s] = s < count ? _mm512_loadu_si512(rows + (int64_t)s * E + at)
                             : _mm512_setzero_si512();
        for (int s = 0; s < 16; s += 2) {
            t[s] = _mm512_unpacklo_epi32(r[s], r[s + 1]);
            t[s + 1] = _mm512_unpackhi_epi32(r[s], r[s + 1]);
        }
        for (int s = 0; s < 16; s += 4) {
            r[s] = _mm512_unpacklo_epi64(t[s], t[s + 2]);
            r[s + 1] = _mm512_unpackhi_epi64(t[s], t[s + 2]);
            r[s + 2] = _mm512_unpacklo_epi64(t[s + 1], t[s + 3]);
            r[s + 3] = _mm512_unpackhi_epi64(t[s + 1], t[s + 3]);
        }
        for (int s = 0; s < 4; s++) {
            t[s] = _mm512_shuffle_i32x4(r[s], r[s + 4], 0x88);
            t[s + 4] = _mm512_shuffle_i32x4(r[s], r[s + 4], 0xdd);
            t[s + 8] = _mm512_shuffle_i32x4(r[s + 8], r[s + 12], 0x88);
            t[s + 12] = _mm512_shuffle_i32x4(r[s + 8], r[s + 12], 0xdd);
        }
        uint32_t *to = out + at / 2 * BLOCK;
        for (int s = 0; s < 4; s++) {
            _mm512_storeu_si512(to + (s)*BLOCK, _mm512_shuffle_i32x4(t[s], t[s + 8], 0x88));
            _mm512_storeu_si512(to + (s + 4) * BLOCK,
                                _mm512_shuffle_i32x4(t[s + 4], t[s + 12], 0x88));
            _mm512_storeu_si512(to + (s + 8) * BLOCK,
                                _mm512_shuffle_i32x4(t[s], t[s + 8], 0xdd));
            _mm512_storeu_si512(to + (s + 12) * BLOCK,
                                _mm512_shuffle_i32x4(t[s + 4], t[s + 12], 0xdd));
        }
    }
}

void fill_keys(struct tables *tables, const uint16_t *rows, int count, int E)
{
    for (int s = 0; s < BLOCK; s += LANES)
        transpose(rows + (int64_t)s * E, count - s, E, tables->keys + s);
}

/* A block's values as pairs of slots; slots outside low ... high - 1 read as zero. Of 32 dims the
 * first vector takes 0-3, 8-11, 16-19, 24-27 and the second the others. */
void fill_values(struct tables *tables, const uint16_t *rows, int low, int high, int E)
{
    uint32_t *out = tables->values;
    const __m512i none = _mm512_setzero_si512();
    for (int i = low / 2; i < (high + 1) / 2; i++) {
        int s = 2 * i;
        const uint16_t *first = rows + (int64_t)s * E, *second = first + E;
        for (int at = 0; at < E; at += 32) {
            __m512i even = s >= low ? _mm512_loadu_si512(first + at) : none;
            __m512i odd = s + 1 < high ? _mm512_loadu_si512(second + at) : none;
            uint32_t *to = out + (int64_t)i * E + at;
            _mm512_storeu_si512(to, _mm512_unpacklo_epi16(even, odd));
            _mm512_storeu_si512(to + LANES, _mm512_unpackhi_epi16(even, odd));
        }
    }
}

/* 2^x for x <= 0, relative error below 3e-6 (the weights are rounded to 8 bits); exactly 1 at 0,
 * and 0 at -infinity, whose reduced part is 0. Only lanes of `some`; the others are 0. */
static inline f32x16 exp2_of(f32x16 x, __mmask16 some)
{
    f32x16 part = _mm512_reduce_ps(x, NEAREST);
    f32x16 y = _mm512_set1_ps(1.3333558e-3f);
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(9.6181291e-3f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(5.5504109e-2f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(2.4022651e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(6.9314718e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(some, y, _mm512_roundscale_ps(x, NEAREST));
}

static inline float exp2_once(float x)
{
    return x == 0.0f ? 1.0f : _mm512_cvtss_f32(exp2_of(_mm512_set1_ps(x), 1));
}

/* Scores of a block become weights in bf16; returns by what the query's earlier sum and acc must be
 * multiplied. */
static float soften(const float *scores, const struct part *part, float scale,
                    struct partial *seen, uint16_t *weights)
{
    uint64_t visible = (~0ull >> (BLOCK - (part->high - part->low))) << part->low;
    f32x16 x[4], top = _mm512_set1_ps(-INFINITY);
    UNROLL for (int v = 0; v < 4; v++)
    {
        x[v] = _mm512_loadu_ps(scores + v * LANES);
        top = _mm512_mask_max_ps(top, (__mmask16)(visible >> (v * LANES)), top, x[v]);
    }
    float highest = _mm512_reduce_max_ps(top) * scale;
    if (!part->fresh && seen->max > highest)
        highest = seen->max;
    const f32x16 factor = _mm512_set1_ps(scale), offset = _mm512_set1_ps(highest);
    /* What is summed is what multiplies the values, so that the weights add up to one. */
    const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    f32x16 sum = _mm512_setzero_ps();
    UNROLL for (int v = 0; v < 4; v++)
        x[v] = exp2_of(_mm512_fmsub_ps(x[v], factor, offset), (__mmask16)(visible >> (v * LANES)));
    UNROLL for (int v = 0; v < 4; v += 2)
    {
        __m512bh rounded = _mm512_cvtne2ps_pbh(x[v + 1], x[v]);
        sum = _mm512_dpbf16_ps(sum, rounded, ones);
        _mm512_storeu_si512(weights + v * LANES, (__m512i)rounded);
    }
    float keep = part->fresh ? 0.0f : exp2_once(seen->max - highest);
    float before = part->fresh ? 0.0f : seen->sum;
    seen->sum = fmaf(before, keep, _mm512_reduce_add_ps(sum));
    seen->max = highest;
    return keep;
}

/* The batch against its part of a block: all queries first meet the keys, then the values, so that
 * either table stays in the nearest cache. */
void attend_batch(const struct batch *batch, const struct tables *tables, const struct part *part,
                  int E, float scale)
{
    int first = part->low / 2, pairs = (part->high + 1) / 2 - first;
    int columns = part->high > 2 * LANES ? 4 : part->high > LANES ? 2 : 1;
    int tiles = (batch->queries + TILE - 1) / TILE;
    float scores[TILE][BLOCK] __attribute__((aligned(64))), *to[TILE];
    const uint32_t *from[TILE];
    float keep[BATCH];
    uint32_t weights[BATCH][BLOCK / 2] __attribute__((aligned(64))); /* pairs of bf16 */
    for (int i = 0; i < tiles; i++) {
        int at = batch->queries * i / tiles, count = batch->queries * (i + 1) / tiles - at;
        for (int q = 0; q < count; q++)
            to[q] = scores[q];
        multipliers[count](columns, batch->q + at, tables->keys, BLOCK, E / 2, to, 0,
                           i ? 0 : part->next_keys);
        for (int q = 0; q < count; q++)
            keep[at + q] = soften(scores[q], part, scale * LOG2_E, batch->seen[at + q],
                                         (uint16_t *)weights[at + q]);
    }
    for (int dim = 0; dim < E;) {
        int vectors = E - dim >= 4 * LANES ? 4 : 2;
        const uint32_t *values = tables->values + (int64_t)first * E + dim;
        for (int i = 0; i < tiles; i++) {
            int at = batch->queries * i / tiles, count = batch->queries * (i + 1) / tiles - at;
            for (int q = 0; q < count; q++) {
                to[q] = batch->seen[at + q]->acc + dim;
                from[q] = weights[at + q] + first;
            }
            const char *ahead = i || !part->next_values ? 0 : part->next_values + dim * 2 * BLOCK;
            multipliers[count](vectors, from, values, E, pairs, to,
                               part->fresh ? 0 : keep + at, ahead);
        }
        dim += vectors * LANES;
    }
}

/* Add what a query saw in a later chunk. */
void fold(struct partial *into, const struct partial *later, int E)
{
    float top = into->max > later->max ? into->max : later->max;
    float keep = exp2_once(into->max - top), add = exp2_once(later->max - top);
    into->sum = fmaf(later->sum, add, into->sum * keep);
    into->max = top;
    for (int at = 0; at < E; at += LANES) {
        f32x16 kept = _mm512_mul_ps(_mm512_loadu_ps(into->acc + at), _mm512_set1_ps(keep));
        f32x16 more = _mm512_loadu_ps(later->acc + at);
        _mm512_storeu_ps(into->acc + at, _mm512_fmadd_ps(more, _mm512_set1_ps(add), kept));
    }
}

/* Weighted mean to bf16, dims back in order. */
void finish(const struct partial *seen, int E, uint16_t *out)
{
    const f32x16 share = _mm512_set1_ps(1.0f / seen->sum);
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    for (int at = 0; at < E; at += 32) {
        f32x16 even = _mm512_mul_ps(_mm512_loadu_ps(seen->acc + at), share);
        f32x16 odd = _mm512_mul_ps(_mm512_loadu_ps(seen->acc + at + LANES), share);
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
        _mm512_storeu_si512(out + at, _mm512_permutexvar_epi64(order, both));
    }
}

