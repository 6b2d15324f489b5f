/* The pass's functions one by one, for model.py: it reads like the model and gets the same bits.
 * Also the head, which is one matrix and no layer.
 */
#include "pass.h"

struct product {
    struct matrix matrix;
    const uint16_t *x; /* (rows, wide) */
    const uint16_t *norm; /* of x before anything else; NULL: none */
    uint16_t *out;     /* (rows, height) */
    char *scratch;     /* product_scratch() bytes, 64-byte aligned */
    int64_t rows;
    float eps;
    int32_t threads;
};

struct product_run {
    const struct product *product;
    struct stage encode, multiply;
};

int64_t product_scratch(int64_t rows, int64_t wide, int threads)
{
    return coded_bytes(rows, wide) + threads * aligned(2 * wide);
}

static void encode_rows(const struct product *p, const struct coded_rows *x, struct stage *stage,
                        const struct member *member)
{
    int64_t wide = p->matrix.wide;
    uint16_t *row = (uint16_t *)(p->scratch + coded_bytes(p->rows, wide) +
                                 member->thread * aligned(2 * wide));
    struct turn turn = begin(stage, p->rows, member->threads);
    for (; has_items(&turn); advance(&turn))
        for (int64_t r = turn.now; r < end_of(&turn); r++) {
            const uint16_t *from = p->x + r * wide;
            if (p->norm) {
                norm_row(from, p->norm, wide, p->eps, row);
                from = row;
            }
            encode_row(from, r, wide, x);
        }
    wait_until_over(stage, p->rows);
}

static void product_work(void *job, const struct member *member)
{
    struct product_run *run = job;
    const struct product *p = run->product;
    const struct matrix *m = &p->matrix;
    struct coded_rows x = coded_at(p->scratch, p->rows, m->wide);
    encode_rows(p, &x, &run->encode, member);
    struct turn turn = begin(&run->multiply, tiles_of(m), member->threads);
    for (; has_items(&turn); advance(&turn)) {
        fetch_tile(m, turn.next);
        for (int64_t t = turn.now; t < end_of(&turn); t++)
            put_tile(m, &x, 0, p->rows, t, item_after(&turn, t), p->out + t * TILE_OUTPUTS,
                     m->height);
    }
}

void run_product(const struct product *p)
{
    struct product_run run = {.product = p};
    run_team(product_work, &run, p->threads);
}

static void attention_work(void *job, const struct member *member)
{
    attend(job, member->thread, member->threads);
}

void run_attention(struct attend_args *args, int threads)
{
    run_team(attention_work, args, threads);
}

void norm_rows(const uint16_t *x, const uint16_t *weight, int64_t rows, int64_t wide, float eps,
               uint16_t *out)
{
    for (int64_t r = 0; r < rows; r++)
        norm_row(x + r * wide, weight, wide, eps, out + r * wide);
}

/* x and out (rows, heads, E); cos and sin (rows, E). */
void rotate_rows(const uint16_t *x, const uint16_t *cos, const uint16_t *sin, int64_t rows,
                 int64_t heads, int E, uint16_t *out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = r * heads; i < (r + 1) * heads; i++)
            rotate_head(x + i * E, cos + r * E, sin + r * E, E, out + i * E);
}

/* inner (rows, 2F), gate first; out (rows, F). */
void activate_rows(const uint16_t *inner, int64_t rows, int64_t wide, int kind, uint16_t *out)
{
    for (int64_t r = 0; r < rows; r++)
        activate(inner + 2 * r * wide, inner + (2 * r + 1) * wide, wide, (enum activation)kind,
                 out + r * wide);
}
