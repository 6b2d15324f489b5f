/* A matrix in NF4 tiles times a few rows of 8-bit codes, for CPUs with AVX512-VNNI and VBMI.
 *
 * 64 bytes of a tile are 32 outputs x 4 inputs: two table look-ups make them unsigned bytes, and one
 * instruction multiplies and sums 64 of them with a row's codes. What decides the speed of a few
 * rows is how many multiplications an instruction does, and with bf16 it is half as many.
 *
 * Invariant: a row's bits depend on the row alone. Inside a block the sums are whole numbers; blocks
 * are added in order, in f32.
 */
#include "pass.h"

#include <string.h>

#define GROUP 6      /* rows whose sums, in two halves of a tile, stay in registers */
#define FEW 1        /* rows that leave the processor's own prefetching the fastest */
#define AHEAD 16384  /* bytes of weights fetched before they are needed, for more rows */
#define HEAD 4096    /* bytes of a tile that its reader wants before the processor sees a stream */
#define WEIGHT_SCALE 112.03f /* the NF4 codes times this are nearest to whole numbers */
#define OFFSET 128   /* makes them unsigned, as one side of the instruction must be */

/* round(112.03 * code) + 128; the codes are those of QLoRA (Dettmers et al. 2023, appendix E). */
static const uint8_t WEIGHTS[16] = {16,  50,  69,  84,  96,  107, 118, 128,
                                    137, 146, 156, 166, 177, 191, 209, 240};
/* Pairs of inputs (2p, 2p + 1) of 32 halves and the next pairs become fours of inputs. */
static const uint16_t FOURS[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                   8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

int64_t coded_bytes(int64_t rows, int64_t wide)
{
    return aligned(rows * wide) + 2 * aligned(rows * wide / BLOCK_INPUTS * 4);
}

struct coded_rows coded_at(char *memory, int64_t rows, int64_t wide)
{
    char *scales = memory + aligned(rows * wide);
    char *shift = scales + aligned(rows * wide / BLOCK_INPUTS * 4);
    return (struct coded_rows){(int8_t *)memory, (float *)scales, (int32_t *)shift};
}

void encode_block(const uint16_t *x, const struct coded_rows *to, int64_t block)
{
    __m512 part[4], top = _mm512_setzero_ps();
    for (int i = 0; i < 4; i++) {
        part[i] = load_bf16(x + i * 16);
        top = _mm512_max_ps(top, _mm512_abs_ps(part[i]));
    }
    float most = _mm512_reduce_max_ps(top);
    __m512 factor = _mm512_set1_ps(most > 0.0f ? 127.0f / most : 0.0f);
    __m512i sum = _mm512_setzero_si512();
    for (int i = 0; i < 4; i++) {
        __m512i code = _mm512_cvt_roundps_epi32(_mm512_mul_ps(part[i], factor),
                                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        sum = _mm512_add_epi32(sum, code);
        _mm_storeu_si128((void *)(to->codes + block * BLOCK_INPUTS + i * 16),
                         _mm512_cvtsepi32_epi8(code));
    }
    to->scales[block] = most / (127.0f * WEIGHT_SCALE);
    to->shift[block] = -OFFSET * _mm512_reduce_add_epi32(sum);
}

void encode_row(const uint16_t *x, int64_t row, int64_t wide, const struct coded_rows *to)
{
    int64_t blocks = wide / BLOCK_INPUTS;
    for (int64_t b = 0; b < blocks; b++)
        encode_block(x + b * BLOCK_INPUTS, to, row * blocks + b);
}

struct sums {
    __m512i half[GROUP][2];
};

/* One block of inputs: 1024 bytes of a tile times `rows` rows, `stride` codes apart. As many bytes
 * are fetched from `soon` on. */
INLINE void multiply_block(const uint8_t *tile, const char *soon, const int8_t *codes,
                           int64_t stride, const int rows, struct sums *sums)
{
    const __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)WEIGHTS));
    const __m512i fours = _mm512_loadu_si512(FOURS);
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK_INPUTS / 4; i++) {
        if (rows > FEW)
            _mm_prefetch(soon + i * 64, _MM_HINT_T1);
        __m512i both = _mm512_permutexvar_epi16(fours, _mm512_loadu_si512(tile + i * 64));
        /* The table repeats every 16 bytes: the other half's bits in an index do no harm. */
        __m512i low = _mm512_permutexvar_epi8(both, table);
        __m512i high = _mm512_permutexvar_epi8(_mm512_srli_epi16(both, 4), table);
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, codes + r * stride + i * 4, sizeof four);
            __m512i x = _mm512_set1_epi32(four);
            sums->half[r][0] = _mm512_dpbusd_epi32(sums->half[r][0], low, x);
            sums->half[r][1] = _mm512_dpbusd_epi32(sums->half[r][1], high, x);
        }
    }
}

INLINE void multiply(const struct matrix *m, const struct coded_rows *x, int64_t tile,
                     int64_t then, const int rows, float *out)
{
    const int64_t bytes = m->wide * (TILE_OUTPUTS / 2), over = (then - tile - 1) * bytes;
    const uint8_t *weights = m->tiles + tile * bytes, *end = weights + bytes;
    const uint16_t *absmax = m->absmax + tile * TILE_OUTPUTS;
    int64_t blocks = m->wide / BLOCK_INPUTS;
    __m512 total[GROUP][2];
    for (int r = 0; r < rows; r++)
        total[r][0] = total[r][1] = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b++) {
        struct sums sums;
        for (int r = 0; r < rows; r++)
            sums.half[r][0] = sums.half[r][1] = _mm512_set1_epi32(x->shift[r * blocks + b]);
        /* Beyond this tile lies one that another thread may be reading: `then` is this one's. */
        const char *soon = (const char *)weights + AHEAD;
        multiply_block(weights, soon < (const char *)end ? soon : soon + over,
                       x->codes + b * BLOCK_INPUTS, m->wide, rows, &sums);
        /* The next tile's scales lie beside these, and this tile's next ones a page further. */
        _mm_prefetch((const char *)(absmax + TILE_OUTPUTS), _MM_HINT_T0);
        __m512 scale[2] = {load_bf16(absmax), load_bf16(absmax + 16)};
        for (int r = 0; r < rows; r++)
            for (int h = 0; h < 2; h++) {
                __m512 factor =
                    _mm512_mul_ps(scale[h], _mm512_set1_ps(x->scales[r * blocks + b]));
                total[r][h] =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.half[r][h]), factor, total[r][h]);
            }
        weights += TILE_OUTPUTS * BLOCK_INPUTS / 2;
        absmax += m->absmax_stride;
    }
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            _mm512_storeu_ps(out + r * TILE_OUTPUTS + h * 16, total[r][h]);
}

typedef void multiplier(const struct matrix *, const struct coded_rows *, int64_t, int64_t,
                        float *);
#define MULTIPLY(ROWS)                                                                            \
    static __attribute__((noinline)) void multiply_##ROWS(                                        \
        const struct matrix *m, const struct coded_rows *x, int64_t tile, int64_t then,           \
        float *out)                                                                               \
    {                                                                                             \
        multiply(m, x, tile, then, ROWS, out);                                                    \
    }
MULTIPLY(1) MULTIPLY(2) MULTIPLY(3) MULTIPLY(4) MULTIPLY(5) MULTIPLY(6)
static multiplier *const multipliers[GROUP + 1] = {0,          multiply_1, multiply_2, multiply_3,
                                                   multiply_4, multiply_5, multiply_6};

/* out (rows, 32) f32, without bias; at most BAND rows. */
static void multiply_band(const struct matrix *m, const struct coded_rows *x, int64_t first_row,
                          int rows, int64_t tile, int64_t then, float *out)
{
    int64_t blocks = m->wide / BLOCK_INPUTS;
    int groups = (rows + GROUP - 1) / GROUP;
    for (int done = 0; groups > 0; groups--) {
        int count = (rows - done + groups - 1) / groups; /* 8 rows are 4 + 4, not 6 + 2 */
        int64_t at = first_row + done;
        struct coded_rows part = {x->codes + at * m->wide, x->scales + at * blocks,
                                  x->shift + at * blocks};
        multipliers[count](m, &part, tile, then, out + done * TILE_OUTPUTS);
        done += count;
    }
}

void fetch_tile(const struct matrix *m, int64_t tile)
{
    if (tile >= tiles_of(m))
        return;
    const uint8_t *weights = m->tiles + tile * m->wide * (TILE_OUTPUTS / 2);
    for (int64_t i = 0; i < HEAD; i += 64)
        _mm_prefetch((const char *)weights + i, _MM_HINT_T1);
    for (int64_t b = 0; b < m->wide / BLOCK_INPUTS; b++)
        _mm_prefetch((const char *)(m->absmax + b * m->absmax_stride + tile * TILE_OUTPUTS),
                     _MM_HINT_T1);
}

INLINE __mmask16 present(const struct matrix *m, int64_t first)
{
    int64_t left = m->height - first;
    return left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}

/* 16 results of one row, biased and rounded. */
INLINE __m256i finished(const struct matrix *m, const float *results, int64_t first, __mmask16 some)
{
    __m512 sum = _mm512_loadu_ps(results);
    if (m->bias)
        sum = _mm512_add_ps(sum, wide_of(_mm256_maskz_loadu_epi16(some, m->bias + first)));
    return (__m256i)_mm512_cvtneps_pbh(sum);
}

void put_tile(const struct matrix *m, const struct coded_rows *x, int64_t first_row, int64_t rows,
              int64_t tile, int64_t then, uint16_t *out, int64_t stride)
{
    float sums[BAND * TILE_OUTPUTS];
    for (int64_t done = 0; done < rows; done += BAND) {
        int count = rows - done < BAND ? (int)(rows - done) : BAND;
        multiply_band(m, x, first_row + done, count, tile, then, sums);
        for (int r = 0; r < count; r++)
            for (int64_t at = 0; at < TILE_OUTPUTS; at += 16) {
                int64_t first = tile * TILE_OUTPUTS + at;
                __mmask16 some = present(m, first);
                if (some)
                    _mm256_mask_storeu_epi16(
                        out + (done + r) * stride + at, some,
                        finished(m, sums + r * TILE_OUTPUTS + at, first, some));
            }
    }
}

void add_tile(const struct matrix *m, const struct coded_rows *x, int64_t rows, int64_t tile,
              int64_t then, uint16_t *out, int64_t stride, float alpha)
{
    uint16_t result[BAND * TILE_OUTPUTS];
    for (int64_t done = 0; done < rows; done += BAND) {
        int64_t count = rows - done < BAND ? rows - done : BAND;
        put_tile(m, x, done, count, tile, then, result, TILE_OUTPUTS);
        for (int64_t r = 0; r < count; r++)
            add_scaled(out + (done + r) * stride, result + r * TILE_OUTPUTS, TILE_OUTPUTS, alpha);
    }
}
