/* A pass of some rows through a stretch of layers, in one call and one parallel region.
 *
 * Each stage shares its work out by tickets and ends at a barrier. What is cheap for one row and
 * needs all of it (a norm, coding a row) every thread does for itself instead of waiting for another.
 *
 * Invariant: the functions are those that engine/operators.py calls one by one, in model.py's order
 * and with its roundings, so the bits are the same.
 */
#include "pass.h"

#include <string.h>

#define STAGES 4 /* of a layer that use tickets */
#define UNIT 64  /* outputs of the activation that are one block of what `down` multiplies */

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
    struct tickets *tickets;
    uint16_t *projected, *queries, *attended; /* (rows, H + 2G, E), (rows, H, E) twice */
    char *inner;                              /* rows of `feed_forward` codes */
    char *own;                                /* coded rows of one thread, then one row in bf16 */
    int64_t own_bytes;
};

static int64_t most_wide(const struct pass *p)
{
    int64_t attended = (int64_t)p->heads * p->head_dim;
    return attended > p->hidden ? attended : p->hidden;
}

/* Lays the parts out from `p->scratch` on; returns how many bytes they take. */
static int64_t furnish(const struct pass *p, int rows, int layers, struct room *room)
{
    int64_t at = 0;
    int64_t heads = p->heads + 2 * p->kv_heads;
    room->attention = (float *)p->scratch;
    at += aligned(4 * attend_scratch(p->heads, p->kv_heads, p->head_dim, (int)p->slots,
                                     p->threads));
    room->tickets = (struct tickets *)(p->scratch + at);
    at += (int64_t)layers * STAGES * (int64_t)sizeof(struct tickets);
    room->projected = (uint16_t *)(p->scratch + at);
    at += aligned(2 * rows * heads * p->head_dim);
    room->queries = (uint16_t *)(p->scratch + at);
    at += aligned(2 * rows * (int64_t)p->heads * p->head_dim);
    room->attended = (uint16_t *)(p->scratch + at);
    at += aligned(2 * rows * (int64_t)p->heads * p->head_dim);
    room->inner = p->scratch + at;
    at += coded_bytes(rows, p->feed_forward);
    room->own = p->scratch + at;
    room->own_bytes = coded_bytes(rows, most_wide(p)) + aligned(2 * most_wide(p));
    return at + p->threads * room->own_bytes;
}

/* Bytes of scratch for passes of this shape with up to `rows` rows; 64-byte aligned and zero before
 * the first one. */
int64_t pass_scratch(const struct pass *p, int rows, int layers)
{
    struct room room;
    return furnish(p, rows, layers, &room);
}

struct run {
    const struct pass *pass;
    struct room room;
};

/* One thread's view of the run. */
struct hand {
    const struct pass *pass;
    const struct room *room;
    const struct member *member;
    struct coded_rows own;
    uint16_t *row;
};

static struct tickets *stage(const struct hand *h, int index, int stage)
{
    return &h->room->tickets[(index - h->pass->first) * STAGES + stage];
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
    normalise(h, p->layers[index].attn_norm);
    int64_t tiles = tiles_of(m), chunk = chunk_of(tiles, h->member->threads), first;
    while ((first = take(stage(h, index, 0), chunk)) < tiles)
        for (int64_t t = first; t < first + chunk && t < tiles; t++)
            put_tile(m, &h->own, 0, p->rows, t, h->room->projected + t * TILE_OUTPUTS, m->height);
}

static void turn(const struct hand *h, const uint16_t *x, const uint16_t *norm, int position,
                 uint16_t *out)
{
    const struct pass *p = h->pass;
    if (norm) {
        norm_row(x, norm, p->head_dim, p->eps, h->row);
        x = h->row;
    }
    int64_t at = (int64_t)position * p->head_dim;
    rotate_head(x, p->cos + at, p->sin + at, p->head_dim, out);
}

/* All heads of one row: queries to their buffer, keys and values to the cache. */
static void place_row(const struct hand *h, int index, int row, int cache_row, int position)
{
    const struct pass *p = h->pass;
    const struct layer *layer = &p->layers[index];
    int64_t E = p->head_dim;
    const uint16_t *x = h->room->projected + row * (p->heads + 2 * p->kv_heads) * E;
    for (int i = 0; i < p->heads; i++, x += E)
        turn(h, x, layer->q_norm, position, h->room->queries + (row * p->heads + i) * E);
    for (int i = 0; i < p->kv_heads; i++, x += E) {
        int64_t slot = ((int64_t)cache_row * p->kv_heads + i) * p->slots + position;
        turn(h, x, layer->k_norm, position, p->keys[index] + slot * E);
        memcpy(p->values[index] + slot * E, x + p->kv_heads * E, (size_t)E * 2);
    }
}

static void place(const struct hand *h, int index)
{
    const struct pass *p = h->pass;
    int row = 0;
    for (int s = 0; s < p->span_count; s++)
        for (int i = 0; i < p->spans[s].count; i++, row++)
            if (row % h->member->threads == h->member->thread)
                place_row(h, index, row, p->spans[s].row, p->spans[s].start + i);
}

static void attend_all(const struct hand *h, int index)
{
    const struct pass *p = h->pass;
    int64_t E = p->head_dim, row = 0;
    for (int s = 0; s < p->span_count; s++) {
        const struct span *span = &p->spans[s];
        int64_t cache_row = (int64_t)span->row * p->kv_heads * p->slots * E;
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
        attend(&args, h->member->thread, h->member->threads);
        wait_for_all();
        row += span->count;
    }
}

/* state += alpha * (x W^T + b), for x in codes. */
static void add_product(const struct hand *h, const struct matrix *m, const struct coded_rows *x,
                        struct tickets *tickets)
{
    const struct pass *p = h->pass;
    int64_t tiles = tiles_of(m), chunk = chunk_of(tiles, h->member->threads), first;
    while ((first = take(tickets, chunk)) < tiles)
        for (int64_t t = first; t < first + chunk && t < tiles; t++)
            add_tile(m, x, p->rows, t, p->state + t * TILE_OUTPUTS, p->hidden, p->residual_scale);
}

/* 64 numbers of the activation for every row, coded as `down` wants them. */
static void expand_unit(const struct hand *h, const struct matrix *m, int64_t unit)
{
    const struct pass *p = h->pass;
    const int64_t blocks = p->feed_forward / UNIT, half = p->feed_forward / TILE_OUTPUTS;
    struct coded_rows inner = coded_at(h->room->inner, p->rows, p->feed_forward);
    uint16_t raw[2][BAND * UNIT]; /* gate and up */
    for (int64_t done = 0; done < p->rows; done += BAND) {
        int64_t count = p->rows - done < BAND ? p->rows - done : BAND;
        for (int part = 0; part < 2; part++)
            for (int64_t t = 0; t < UNIT / TILE_OUTPUTS; t++)
                put_tile(m, &h->own, done, count, part * half + unit * (UNIT / TILE_OUTPUTS) + t,
                         raw[part] + t * TILE_OUTPUTS, UNIT);
        activate(raw[0], raw[1], count * UNIT, (enum activation)p->activation, raw[0]);
        for (int64_t r = 0; r < count; r++)
            encode_block(raw[0] + r * UNIT, &inner, (done + r) * blocks + unit);
    }
}

static void expand(const struct hand *h, int index)
{
    const struct pass *p = h->pass;
    const struct layer *layer = &p->layers[index];
    normalise(h, layer->mlp_norm);
    int64_t units = p->feed_forward / UNIT, unit;
    while ((unit = take(stage(h, index, 2), 1)) < units)
        expand_unit(h, &layer->up, unit);
}

static void run_layer(const struct hand *h, int index)
{
    const struct pass *p = h->pass;
    const struct layer *layer = &p->layers[index];
    project(h, index);
    wait_for_all();
    place(h, index);
    wait_for_all();
    attend_all(h, index);
    for (int r = 0; r < p->rows; r++)
        encode_row(h->room->attended + (int64_t)r * layer->o.wide, r, layer->o.wide, &h->own);
    add_product(h, &layer->o, &h->own, stage(h, index, 1));
    wait_for_all();
    expand(h, index);
    wait_for_all();
    struct coded_rows inner = coded_at(h->room->inner, p->rows, p->feed_forward);
    add_product(h, &layer->down, &inner, stage(h, index, 3));
    wait_for_all();
}

static void work(void *job, const struct member *member)
{
    struct run *run = job;
    const struct pass *p = run->pass;
    char *own = run->room.own + member->thread * run->room.own_bytes;
    struct hand hand = {
        .pass = p,
        .room = &run->room,
        .member = member,
        .own = coded_at(own, p->rows, most_wide(p)),
        .row = (uint16_t *)(own + coded_bytes(p->rows, most_wide(p))),
    };
    for (int i = p->first; i < p->stop; i++)
        run_layer(&hand, i);
}

void run_layers(const struct pass *p)
{
    struct run run = {.pass = p};
    furnish(p, p->rows, p->stop - p->first, &run.room);
    memset(run.room.tickets, 0,
           (size_t)(p->stop - p->first) * STAGES * sizeof(struct tickets));
    run_team(work, &run, p->threads);
}
