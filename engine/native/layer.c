/* One layer of a pass: a few stages, one after the other.
 *
 * What is cheap for one row and needs all of it (a norm, coding a row) every thread does for itself,
 * just before it takes items of the stage that needs it. A thread that comes late may then read a
 * state that others are already changing; it finds no items left, so nothing comes of it.
 *
 * Invariant: the functions are those that native/operators.py calls one by one, in model.py's order
 * and with its roundings, so the bits are the same.
 */
#include "layer.h"

#include <string.h>

#define UNIT 64 /* outputs of the activation that are one block of what `down` multiplies */

enum { PROJECT, PLACE, JOIN, EXPAND, REDUCE, ATTEND };

static struct stage *stage_of(const struct hand *h, int index, int which)
{
    const struct pass *p = h->pass;
    return &h->room->stages[(index - p->first) * (STAGES + p->span_count) + which];
}

static void normalise(const struct hand *h, const uint16_t *weight)
{
    const struct pass *p = h->pass;
    for (int r = 0; r < p->rows; r++) {
        norm_row(p->state + (int64_t)r * p->hidden, weight, p->hidden, p->eps, h->row);
        encode_row(h->row, r, p->hidden, &h->own);
    }
}

static void project(const struct hand *h, int index)
{
    const struct pass *p = h->pass;
    const struct matrix *m = &p->layers[index].qkv;
    struct stage *stage = stage_of(h, index, PROJECT);
    int64_t tiles = tiles_of(m);
    if (!nothing_left(stage, tiles)) {
        normalise(h, p->layers[index].attn_norm);
        struct turn turn = begin(stage, tiles, h->member->threads);
        for (; has_items(&turn); advance(&turn)) {
            fetch_tile(m, turn.next);
            for (int64_t t = turn.now; t < end_of(&turn); t++)
                put_tile(m, &h->own, 0, p->rows, t, item_after(&turn, t),
                         h->room->projected + t * TILE_OUTPUTS, m->height);
        }
    }
    wait_until_over(stage, tiles);
}

static void turn_head(const struct hand *h, const uint16_t *x, const uint16_t *norm, int64_t position,
                 uint16_t *out)
{
    const struct pass *p = h->pass;
    if (norm) {
        norm_row(x, norm, p->head_dim, p->eps, h->row);
        x = h->row;
    }
    int64_t at = position * p->head_dim;
    rotate_head(x, p->cos + at, p->sin + at, p->head_dim, out);
}

/* All heads of a row, the i-th of its span: queries to their buffer, keys and values to the cache. */
static void place_row(const struct hand *h, int index, int64_t row, const struct span *span,
                      int64_t i)
{
    const struct pass *p = h->pass;
    const struct layer *layer = &p->layers[index];
    const int64_t E = p->head_dim, position = span->start + i;
    const uint16_t *x = h->room->projected + row * (p->heads + 2 * p->kv_heads) * E;
    for (int n = 0; n < p->heads; n++, x += E)
        turn_head(h, x, layer->q_norm, position, h->room->queries + (row * p->heads + n) * E);
    for (int n = 0; n < p->kv_heads; n++, x += E) {
        int64_t slot = ((int64_t)span->row * p->kv_heads + n) * p->slots + position;
        turn_head(h, x, layer->k_norm, position, p->keys[index] + slot * E);
        memcpy(p->values[index] + slot * E, x + p->kv_heads * E, (size_t)E * 2);
    }
}

static void place(const struct hand *h, int index)
{
    const struct pass *p = h->pass;
    struct stage *stage = stage_of(h, index, PLACE);
    struct turn turn = begin(stage, p->rows, h->member->threads);
    for (; has_items(&turn); advance(&turn)) {
        int64_t before = 0;
        for (int s = 0; s < p->span_count; before += p->spans[s++].count)
            for (int64_t r = turn.now; r < end_of(&turn); r++)
                if (r >= before && r < before + p->spans[s].count)
                    place_row(h, index, r, &p->spans[s], r - before);
    }
    wait_until_over(stage, p->rows);
}

/* The attention of one span; `row` is its first one. */
static void attend_span(const struct hand *h, int index, int s, int64_t row)
{
    const struct pass *p = h->pass;
    const struct span *span = &p->spans[s];
    int64_t E = p->head_dim, cache_row = (int64_t)span->row * p->kv_heads * p->slots * E;
    struct attend_args args = {
        .q = h->room->queries + row * p->heads * E,
        .k = p->keys[index] + cache_row,
        .v = p->values[index] + cache_row,
        .out = h->room->attended + row * p->heads * E,
        .scratch = h->room->attention,
        .head_stride = p->slots * E,
        .T = span->count,
        .start = span->start,
        .window = p->window,
        .H = p->heads,
        .G = p->kv_heads,
        .E = p->head_dim,
        .scale = p->attention_scale,
    };
    struct stage *stage = stage_of(h, index, ATTEND + s);
    int shares = SHARES * h->member->threads;
    struct turn turn = begin(stage, shares, h->member->threads);
    for (; has_items(&turn); advance(&turn))
        for (int64_t i = turn.now; i < end_of(&turn); i++)
            attend(&args, (int)i, shares);
    wait_until_over(stage, shares);
}

/* state += alpha * (x W^T + b), for x in codes. */
static void add_product(const struct hand *h, const struct matrix *m, const struct coded_rows *x,
                        struct stage *stage)
{
    const struct pass *p = h->pass;
    struct turn turn = begin(stage, tiles_of(m), h->member->threads);
    for (; has_items(&turn); advance(&turn)) {
        fetch_tile(m, turn.next);
        for (int64_t t = turn.now; t < end_of(&turn); t++)
            add_tile(m, x, p->rows, t, item_after(&turn, t), p->state + t * TILE_OUTPUTS,
                     p->hidden, p->residual_scale);
    }
    wait_until_over(stage, tiles_of(m));
}

static void join(const struct hand *h, int index)
{
    const struct pass *p = h->pass;
    const struct matrix *m = &p->layers[index].o;
    struct stage *stage = stage_of(h, index, JOIN);
    for (int r = 0; r < p->rows && !nothing_left(stage, tiles_of(m)); r++)
        encode_row(h->room->attended + r * m->wide, r, m->wide, &h->own);
    add_product(h, m, &h->own, stage);
}

/* 64 numbers of the activation for every row, coded as `down` wants them. */
static void expand_unit(const struct hand *h, const struct matrix *m, int64_t unit, int64_t next)
{
    const struct pass *p = h->pass;
    const int64_t blocks = p->feed_forward / UNIT, each = UNIT / TILE_OUTPUTS;
    const int64_t first[] = {unit * each, (blocks + unit) * each, next * each}; /* gate, up, then */
    struct coded_rows inner = coded_at(h->room->inner, p->rows, p->feed_forward);
    uint16_t raw[2][BAND * UNIT]; /* gate and up */
    for (int64_t done = 0; done < p->rows; done += BAND) {
        int64_t count = p->rows - done < BAND ? p->rows - done : BAND;
        for (int part = 0; part < 2; part++) {
            /* Gate and up lie far apart: while one is read, the other is fetched. */
            fetch_tile(m, first[part + 1]);
            for (int64_t t = 0; t < each; t++)
                put_tile(m, &h->own, done, count, first[part] + t,
                         t + 1 < each ? first[part] + t + 1 : first[part + 1],
                         raw[part] + t * TILE_OUTPUTS, UNIT);
        }
        activate(raw[0], raw[1], count * UNIT, (enum activation)p->activation, raw[0]);
        for (int64_t r = 0; r < count; r++)
            encode_block(raw[0] + r * UNIT, &inner, (done + r) * blocks + unit);
    }
}

static void expand(const struct hand *h, int index)
{
    const struct pass *p = h->pass;
    const struct layer *layer = &p->layers[index];
    struct stage *stage = stage_of(h, index, EXPAND);
    int64_t units = p->feed_forward / UNIT;
    if (!nothing_left(stage, units)) {
        normalise(h, layer->mlp_norm);
        struct turn turn = begin(stage, units, h->member->threads);
        for (; has_items(&turn); advance(&turn))
            for (int64_t unit = turn.now; unit < end_of(&turn); unit++)
                expand_unit(h, &layer->up, unit, item_after(&turn, unit));
    }
    wait_until_over(stage, units);
}

void run_layer(const struct hand *h, int index)
{
    const struct pass *p = h->pass;
    project(h, index);
    place(h, index);
    for (int s = 0, row = 0; s < p->span_count; row += p->spans[s++].count)
        attend_span(h, index, s, row);
    join(h, index);
    expand(h, index);
    struct coded_rows inner = coded_at(h->room->inner, p->rows, p->feed_forward);
    add_product(h, &p->layers[index].down, &inner, stage_of(h, index, REDUCE));
}
