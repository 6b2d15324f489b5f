/* Threads: those of the OpenMP runtime that torch has loaded, so that there is one pool and one
 * setting of its size. Its entry points are handed in at run time; nothing is linked against it.
 */
#include "pass.h"

#include <sched.h>

#define PATIENCE 4000 /* looks at a stage before the processor is offered to others */

typedef void region(void *);
typedef void parallel_call(region *, void *, unsigned, unsigned);
typedef int number_call(void);

static parallel_call *parallel;
static number_call *thread_number, *thread_count;

/* GOMP_parallel, omp_get_thread_num, omp_get_num_threads. */
void use_threads_of(void *begin, void *number, void *count)
{
    parallel = (parallel_call *)begin;
    thread_number = (number_call *)number;
    thread_count = (number_call *)count;
}

struct team {
    team_work *work;
    void *job;
};

static void enter(void *data)
{
    const struct team *team = data;
    /* The runtime may grant fewer threads than were asked for. */
    struct member member = {thread_number(), thread_count()};
    team->work(team->job, &member);
}

void run_team(team_work *work, void *job, int threads)
{
    struct team team = {work, job};
    parallel(enter, &team, (unsigned)threads, 0);
}

/* Long enough runs of memory to be fetched well, short enough that all threads end together. */
static int64_t chunk_of(int64_t items, int threads)
{
    int64_t chunk = items / (threads * 16);
    return chunk < 1 ? 1 : chunk > 8 ? 8 : chunk;
}

struct turn begin(struct stage *stage, int64_t total, int threads)
{
    int64_t chunk = chunk_of(total, threads);
    struct turn turn = {.stage = stage, .total = total, .chunk = chunk};
    turn.now = atomic_fetch_add_explicit(&stage->next, chunk, memory_order_acquire);
    turn.next = atomic_fetch_add_explicit(&stage->next, chunk, memory_order_acquire);
    return turn;
}

void advance(struct turn *turn)
{
    atomic_fetch_add_explicit(&turn->stage->done, end_of(turn) - turn->now, memory_order_release);
    turn->now = turn->next;
    turn->next =
        atomic_fetch_add_explicit(&turn->stage->next, turn->chunk, memory_order_acquire);
}

void wait_until_over(struct stage *stage, int64_t total)
{
    int looked = 0;
    while (atomic_load_explicit(&stage->done, memory_order_acquire) < total)
        if (++looked < PATIENCE)
            _mm_pause();
        else
            sched_yield();
}
