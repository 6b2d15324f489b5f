/* What lies between the matrices of a layer: norm, rotation, activation, residual. bf16 in and out,
 * f32 in between, one rounding a function. Compiled without contraction, so that inlining somewhere
 * else can't change a bit.
 */
#include "pass.h"

#include <math.h>

void norm_row(const uint16_t *x, const uint16_t *weight, int64_t wide, float eps, uint16_t *out)
{
    __m512 square[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t i = 0; i < wide; i += 32)
        for (int h = 0; h < 2; h++) {
            __m512 part = load_bf16(x + i + h * 16);
            square[h] = _mm512_fmadd_ps(part, part, square[h]);
        }
    float mean = _mm512_reduce_add_ps(_mm512_add_ps(square[0], square[1])) / (float)wide;
    __m512 factor = _mm512_set1_ps(1.0f / sqrtf(mean + eps));
    for (int64_t i = 0; i < wide; i += 16)
        store_bf16(out + i, _mm512_mul_ps(_mm512_mul_ps(load_bf16(x + i), factor),
                                          load_bf16(weight + i)));
}

/* Su et al. 2021, section 3.4.2, with halves for pairs; the sign is in `sin`. */
void rotate_head(const uint16_t *x, const uint16_t *cos, const uint16_t *sin, int E, uint16_t *out)
{
    int half = E / 2;
    for (int i = 0; i < half; i += 16) {
        __m512 left = load_bf16(x + i), right = load_bf16(x + half + i);
        __m512 first = _mm512_mul_ps(left, load_bf16(cos + i));
        __m512 second = _mm512_mul_ps(right, load_bf16(cos + half + i));
        store_bf16(out + i, _mm512_fmadd_ps(right, load_bf16(sin + i), first));
        store_bf16(out + half + i, _mm512_fmadd_ps(left, load_bf16(sin + half + i), second));
    }
}

/* e^x; the argument is kept where the result is finite. Polynomial: Remez on [-0.5, 0.5] for 2^x. */
INLINE __m512 exp_of(__m512 x)
{
    x = _mm512_mul_ps(_mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(88.0f)),
                                    _mm512_set1_ps(-88.0f)),
                      _mm512_set1_ps(1.44269504f));
    __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 part = _mm512_sub_ps(x, whole);
    __m512 y = _mm512_set1_ps(1.5403530e-4f);
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(1.3333558e-3f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(9.6181291e-3f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(5.5504109e-2f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(2.4022651e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(6.9314718e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, whole);
}

INLINE __m512 times_sigmoid(__m512 x, __m512 argument)
{
    __m512 one = _mm512_set1_ps(1.0f);
    __m512 below = _mm512_add_ps(one, exp_of(_mm512_sub_ps(_mm512_setzero_ps(), argument)));
    return _mm512_div_ps(x, below);
}

/* GELU's tanh form, x (1 + tanh u) / 2, is x sigmoid(2u). */
INLINE __m512 gelu_argument(__m512 x)
{
    __m512 cube = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    __m512 inner = _mm512_fmadd_ps(cube, _mm512_set1_ps(0.044715f), x);
    return _mm512_mul_ps(inner, _mm512_set1_ps(2.0f * 0.79788456f));
}

void activate(const uint16_t *gate, const uint16_t *up, int64_t count, enum activation kind,
              uint16_t *out)
{
    for (int64_t i = 0; i < count; i += 16) {
        __m512 x = load_bf16(gate + i);
        __m512 y = times_sigmoid(x, kind == GELU_TANH ? gelu_argument(x) : x);
        store_bf16(out + i, _mm512_mul_ps(y, load_bf16(up + i)));
    }
}

void add_scaled(uint16_t *to, const uint16_t *x, int64_t count, float alpha)
{
    __m512 factor = _mm512_set1_ps(alpha);
    for (int64_t i = 0; i < count; i += 16)
        store_bf16(to + i, _mm512_fmadd_ps(load_bf16(x + i), factor, load_bf16(to + i)));
}
