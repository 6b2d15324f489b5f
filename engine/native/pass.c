/* A pass of some rows through a stretch of layers, in one call and one parallel region: where
 * everything lies, and the way through the layers.
 */
#include "layer.h"

#include <string.h>

static int64_t most_wide(const struct pass *p)
{
    int64_t attended = (int64_t)p->heads * p->head_dim;
    return attended > p->hidden ? attended : p->hidden;
}

/* Lays the parts out from `p->scratch` on; returns how many bytes they take. */
static int64_t furnish(const struct pass *p, int rows, int stages, struct room *room)
{
    int64_t at = 0;
    int64_t heads = p->heads + 2 * p->kv_heads;
    room->attention = (float *)p->scratch;
    at += aligned(4 * attend_scratch(p->heads, p->kv_heads, p->head_dim, (int)p->slots,
                                     SHARES * p->threads));
    room->stages = (struct stage *)(p->scratch + at);
    at += stages * (int64_t)sizeof(struct stage);
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

/* Bytes of scratch for passes of this shape with up to `rows` rows in `spans` spans through `layers`
 * layers; 64-byte aligned and zero before the first one. */
int64_t pass_scratch(const struct pass *p, int rows, int spans, int layers)
{
    struct room room;
    return furnish(p, rows, layers * (STAGES + spans), &room);
}

struct run {
    const struct pass *pass;
    struct room room;
};

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
    int stages = (p->stop - p->first) * (STAGES + p->span_count);
    furnish(p, p->rows, stages, &run.room);
    memset(run.room.stages, 0, (size_t)stages * sizeof(struct stage));
    run_team(work, &run, p->threads);
}
