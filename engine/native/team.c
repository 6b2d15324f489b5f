/* Threads: those of the OpenMP runtime that torch has loaded, so that there is one pool and one
 * setting of its size. Its entry points are handed in at run time; nothing is linked against it.
 */
#include "pass.h"

typedef void region(void *);
typedef void parallel_call(region *, void *, unsigned, unsigned);
typedef void barrier_call(void);
typedef int number_call(void);

static parallel_call *parallel;
static barrier_call *barrier;
static number_call *thread_number, *thread_count;

/* GOMP_parallel, GOMP_barrier, omp_get_thread_num, omp_get_num_threads. */
void use_threads_of(void *begin, void *wait, void *number, void *count)
{
    parallel = (parallel_call *)begin;
    barrier = (barrier_call *)wait;
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

void wait_for_all(void) { barrier(); }
