/* Attention of new queries over one cache row, for CPUs with AVX512-BF16.
 *
 * Every block of keys and values is read once for all queries of its kv head (FlashAttention, Dao
 * et al. 2022, alg. 1, cut over slots as well). Owns who does which block when; knows no model and
 * keeps no state between calls but the counters at the front of `scratch`, left at zero.
 *
 * Invariant: a query's bits depend on its position, its window and what its slots hold, never on
 * how many queries a call has, where it starts or how many threads share it. Blocks and chunks
 * therefore lie at absolute multiples, each is summed in one order, and chunks are folded by slot.
 * A slot that a query may not see is never multiplied into it, so it may hold anything.
 */
#include "attention_block.h"
#include "native.h"

#include <string.h>

#define CHUNK 512    /* slots of one work item */
#define FEW_ROWS 16  /* up to here items are chunks, beyond it they are rows with all their slots */
#define MOST_ROWS 16 /* rows of one such item */

static int min_of(int a, int b) { return a < b ? a : b; }
static int max_of(int a, int b) { return a > b ? a : b; }

static int first_slot(const struct attend_args *a, int row)
{
    int position = a->start + row;
    return a->window > 0 ? max_of(0, position - a->window + 1) : 0;
}

/* Some rows of one kv head, and where what they see is kept: one partial per query. */
struct share {
    int head, row, rows;
    float *partials;
};

static struct partial *partial_of(const struct attend_args *a, const struct share *share, int query)
{
    return (struct partial *)(share->partials + query * partial_floats(a->E));
}

/* Queries first ... stop - 1 of the share. */
static void attend_queries(const struct attend_args *a, const struct share *share, int first,
                           int stop, const struct tables *tables, struct part part)
{
    int per_head = a->H / a->G;
    struct batch batch;
    for (int from = first; from < stop; from += BATCH) {
        batch.queries = min_of(BATCH, stop - from);
        for (int q = 0; q < batch.queries; q++) {
            int row = share->row + (from + q) / per_head, of = (from + q) % per_head;
            int64_t at = (int64_t)row * a->H + share->head * per_head + of;
            batch.q[q] = (const uint32_t *)(a->q + at * a->E);
            batch.seen[q] = partial_of(a, share, from + q);
        }
        attend_batch(&batch, tables, &part, a->E, a->scale);
        part.next_keys = part.next_values = 0;
    }
}

/* Whether `block` is the first that a row sees within its chunk. */
static int is_first(const struct attend_args *a, int row, int block)
{
    return block % CHUNK == 0 || first_slot(a, row) >= block;
}

static void attend_block(const struct attend_args *a, const struct share *share, int block,
                         struct tables *tables)
{
    int per_head = a->H / a->G, last = share->row + share->rows - 1;
    int64_t at = share->head * a->head_stride + (int64_t)block * a->E;
    int written = a->start + last + 1 - block;
    struct part part = {.high = BLOCK, .fresh = is_first(a, last, block)};
    if (written > BLOCK) {
        part.next_keys = (const char *)(a->k + at + BLOCK * a->E);
        part.next_values = (const char *)(a->v + at + BLOCK * a->E);
    }
    fill_keys(tables, a->k + at, written, a->E);
    if (a->start + share->row >= block + BLOCK - 1 && first_slot(a, last) <= block &&
        is_first(a, share->row, block) == part.fresh) {
        fill_values(tables, a->v + at, 0, BLOCK, a->E);
        attend_queries(a, share, 0, share->rows * per_head, tables, part);
        return;
    }
    for (int i = 0; i < share->rows; i++) {
        int row = share->row + i;
        part.low = max_of(0, first_slot(a, row) - block);
        part.high = min_of(BLOCK, a->start + row + 1 - block);
        part.fresh = is_first(a, row, block);
        if (part.low >= part.high)
            continue;
        fill_values(tables, a->v + at, part.low, part.high, a->E);
        attend_queries(a, share, i * per_head, (i + 1) * per_head, tables, part);
    }
}

static void attend_chunk(const struct attend_args *a, const struct share *share, int chunk,
                         struct tables *tables)
{
    int first = max_of(chunk * CHUNK, first_slot(a, share->row) / BLOCK * BLOCK);
    int stop = min_of((chunk + 1) * CHUNK, a->start + share->row + share->rows);
    for (int block = first; block < stop; block += BLOCK)
        attend_block(a, share, block, tables);
}

static int sees(const struct attend_args *a, int row, int chunk)
{
    return first_slot(a, row) / CHUNK <= chunk && chunk <= (a->start + row) / CHUNK;
}

static void finish_share(const struct attend_args *a, const struct share *share)
{
    int per_head = a->H / a->G;
    for (int i = 0; i < share->rows * per_head; i++) {
        int64_t at = (int64_t)(share->row + i / per_head) * a->H + share->head * per_head +
                     i % per_head;
        finish(partial_of(a, share, i), a->E, a->out + at * a->E);
    }
}

/* Fold a chunk's partials into those of the earlier chunks; a row's first ones are copied. */
static void fold_share(const struct attend_args *a, const struct share *into,
                       const struct share *later, int chunk)
{
    int per_head = a->H / a->G;
    for (int i = 0; i < into->rows * per_head; i++) {
        int row = into->row + i / per_head;
        if (!sees(a, row, chunk))
            continue;
        struct partial *to = partial_of(a, into, i), *from = partial_of(a, later, i);
        if (first_slot(a, row) / CHUNK == chunk) {
            if (to != from)
                memcpy(to, from, sizeof(float) * (size_t)partial_floats(a->E));
        } else {
            fold(to, from, a->E);
        }
    }
}

static int first_chunk(const struct attend_args *a, int row) { return first_slot(a, row) / CHUNK; }
static int last_chunk(const struct attend_args *a, int row) { return (a->start + row) / CHUNK; }

/* Few rows: the threads share the chunks; who ends a head's last one folds that head. */
static void attend_few(const struct attend_args *a, int thread, int threads, struct tables *tables)
{
    int first = first_chunk(a, 0), chunks = last_chunk(a, a->T - 1) - first + 1;
    int64_t one = (int64_t)a->T * (a->H / a->G) * partial_floats(a->E);
    int32_t *done = (int32_t *)a->scratch;
    float *partials = a->scratch + ATTEND_HEADS;
    for (int item = thread; item < chunks * a->G; item += threads) {
        int head = item % a->G;
        struct share share = {.head = head, .rows = a->T};
        float *of_head = partials + head * chunks * one;
        share.partials = of_head + item / a->G * one;
        attend_chunk(a, &share, first + item / a->G, tables);
        if (__atomic_add_fetch(&done[head], 1, __ATOMIC_ACQ_REL) < chunks)
            continue;
        __atomic_store_n(&done[head], 0, __ATOMIC_RELAXED);
        struct share whole = {.head = head, .rows = a->T, .partials = of_head};
        for (int i = 0; i < chunks; i++) {
            share.partials = of_head + i * one;
            fold_share(a, &whole, &share, first + i);
        }
        finish_share(a, &whole);
    }
}

/* Many rows: the threads share the rows, and each takes its rows through all their slots. */
static void attend_many(const struct attend_args *a, int thread, int threads,
                        struct tables *tables)
{
    int for_all = min_of(a->T, (threads + a->G - 1) / a->G);
    int parts = max_of((a->T + MOST_ROWS - 1) / MOST_ROWS, for_all);
    int64_t one = (int64_t)MOST_ROWS * (a->H / a->G) * partial_floats(a->E);
    float *own = a->scratch + ATTEND_HEADS + 2 * thread * one;
    for (int item = thread; item < parts * a->G; item += threads) {
        int part = item / a->G, row = (int)((int64_t)a->T * part / parts);
        struct share whole = {.head = item % a->G, .row = row, .partials = own};
        whole.rows = (int)((int64_t)a->T * (part + 1) / parts) - row;
        int first = first_chunk(a, row), last = last_chunk(a, row + whole.rows - 1);
        for (int chunk = first; chunk <= last; chunk++) {
            struct share next = whole;
            if (chunk > first)
                next.partials = own + one;
            attend_chunk(a, &next, chunk, tables);
            fold_share(a, &whole, &next, chunk);
        }
        finish_share(a, &whole);
    }
}

int64_t attend_scratch(int H, int G, int E, int slots, int threads)
{
    int64_t few = (int64_t)(slots + CHUNK - 1) / CHUNK * G * FEW_ROWS;
    int64_t many = 2ll * threads * MOST_ROWS; /* what was seen until now, and the next chunk */
    return ATTEND_HEADS + (few > many ? few : many) * (H / G) * partial_floats(E);
}

void attend(const struct attend_args *a, int thread, int threads)
{
    struct tables tables;
    if (a->T <= FEW_ROWS)
        attend_few(a, thread, threads, &tables);
    else
        attend_many(a, thread, threads, &tables);
}
