/* Probes the machine: a benchmark here means little without its state.
 *
 *   probe line CPU_A CPU_B    round trip of one cache line between two cores, ns (median of rounds)
 *   probe sweep RANKS BYTES   reads and writes all ranks' buffers of BYTES once, in place, on all
 *                             cores: seconds of the fastest sweep with plain stores (without and
 *                             with prefetching), then with streaming ones
 *   probe burn CPU            occupies one core until it is ended
 *
 * Prints its numbers on one line.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { kRounds = 9, kTripsPerRound = 2000, kMaxThreads = 64, kMaxRanks = 64 };
/* Of a sweep: bytes of each rank at a time, ways to do it, and how often one is timed, large or
 * small. */
enum { kLine = 64, kBlock = 256, kVariantCount = 4, kFewRounds = 2, kMostRounds = 5 };

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

static int CompareDoubles(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

static struct { _Alignas(128) atomic_int turn; } g_line;
static int g_answer_cpu;

/* The asking side stores odd numbers, the answering side the next even one; -1 ends it. */
static void* Answer(void* unused) {
  (void)unused;
  Pin(g_answer_cpu);
  for (;;) {
    const int seen = atomic_load_explicit(&g_line.turn, memory_order_acquire);
    if (seen == -1) return NULL;
    if (seen % 2 == 1) atomic_store_explicit(&g_line.turn, seen + 1, memory_order_release);
  }
}

static int ProbeLine(int cpu_a, int cpu_b) {
  pthread_t thread;
  double rounds[kRounds];
  int turn = 0;
  g_answer_cpu = cpu_b;
  Pin(cpu_a);
  if (pthread_create(&thread, NULL, Answer, NULL) != 0) return 1;
  for (int round = 0; round < kRounds; ++round) {
    const double start = Now();
    for (int trip = 0; trip < kTripsPerRound; ++trip) {
      atomic_store_explicit(&g_line.turn, turn + 1, memory_order_release);
      turn += 2;
      while (atomic_load_explicit(&g_line.turn, memory_order_acquire) != turn) {
      }
    }
    rounds[round] = (Now() - start) / kTripsPerRound;
  }
  atomic_store(&g_line.turn, -1);
  pthread_join(thread, NULL);
  qsort(rounds, kRounds, sizeof(double), CompareDoubles);
  printf("%.1f\n", 1e9 * rounds[kRounds / 2]);
  return 0;
}

/* What every all-reduce has to do to memory, and no more: read each rank's buffer once and write
 * each rank's buffer once, in place, all cores at work, none waiting for another. The sum is of
 * integers, which is free here. */
typedef char* Rank;
typedef void (*SweepPart)(const Rank* buffers, int ranks, size_t first, size_t end, size_t ahead,
                          int streaming);

/* Past the end of a buffer that is harmless. */
static inline void PrefetchBlock(const char* block) {
  for (int line = 0; line < kBlock / kLine; ++line)
    __builtin_prefetch(block + (size_t)line * kLine);
}

/* Four cache lines of every rank at a time: enough loads in flight, and streaming stores fill whole
 * lines. */
__attribute__((target("avx2"))) static void SweepAvx2(const Rank* buffers, int ranks, size_t first,
                                                      size_t end, size_t ahead, int streaming) {
  enum { kVectors = kBlock / sizeof(__m256i) };
  for (size_t at = first; at < end; at += kBlock) {
    __m256i sum[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sum[i] = _mm256_setzero_si256();
    for (int rank = 0; rank < ranks; ++rank) {
      const __m256i* from = (const __m256i*)(buffers[rank] + at);
      if (ahead != 0) PrefetchBlock(buffers[rank] + at + ahead);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sum[i] = _mm256_add_epi32(sum[i], from[i]);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      __m256i* to = (__m256i*)(buffers[rank] + at);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors && streaming; ++i) _mm256_stream_si256(to + i, sum[i]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors && !streaming; ++i) to[i] = sum[i];
    }
  }
  _mm_sfence();
}

__attribute__((target("avx512f"))) static void SweepAvx512(const Rank* buffers, int ranks,
                                                           size_t first, size_t end, size_t ahead,
                                                           int streaming) {
  enum { kVectors = kBlock / sizeof(__m512i) };
  for (size_t at = first; at < end; at += kBlock) {
    __m512i sum[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sum[i] = _mm512_setzero_si512();
    for (int rank = 0; rank < ranks; ++rank) {
      const __m512i* from = (const __m512i*)(buffers[rank] + at);
      if (ahead != 0) PrefetchBlock(buffers[rank] + at + ahead);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sum[i] = _mm512_add_epi32(sum[i], from[i]);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      __m512i* to = (__m512i*)(buffers[rank] + at);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors && streaming; ++i) _mm512_stream_si512(to + i, sum[i]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors && !streaming; ++i) to[i] = sum[i];
    }
  }
  _mm_sfence();
}

/* One core's part of a sweep: [first, end) of every rank's buffer. */
typedef struct SweepTask {
  int cpu;
  const Rank* buffers;
  int ranks;
  size_t first;
  size_t end;
  int repeats;
  int rounds;
  pthread_barrier_t* barrier;
  struct {
    double begin;
    double end;
  } times[kVariantCount][kMostRounds];
} SweepTask;

/* The variants, in this order: one that streams leaves nothing in the caches, so the plain ones go
 * first. */
static const struct {
  int streaming;
  size_t ahead; /* bytes that are prefetched beyond those in work */
} kVariants[kVariantCount] = {{0, 0}, {0, 1024}, {1, 0}, {1, 1024}};

static void* Sweep(void* argument) {
  SweepTask* task = (SweepTask*)argument;
  Pin(task->cpu);
  for (int rank = 0; rank < task->ranks; ++rank) {
    memset(task->buffers[rank] + task->first, rank, task->end - task->first);
  }
  const SweepPart part = __builtin_cpu_supports("avx512f") ? SweepAvx512 : SweepAvx2;
  for (int variant = 0; variant < kVariantCount; ++variant) {
    for (int round = 0; round < task->rounds; ++round) {
      pthread_barrier_wait(task->barrier);
      task->times[variant][round].begin = Now();
      for (int k = 0; k < task->repeats; ++k) {
        part(task->buffers, task->ranks, task->first, task->end, kVariants[variant].ahead,
             kVariants[variant].streaming);
      }
      task->times[variant][round].end = Now();
    }
  }
  return NULL;
}

/* On huge pages where the system grants them: a floor has to be the best that the machine can
 * do. */
static char* AllocateHuge(size_t bytes) {
  const size_t huge = (size_t)2 << 20;
  const size_t rounded = (bytes + huge - 1) / huge * huge;
  char* memory = (char*)aligned_alloc(huge, rounded);
  if (memory != NULL) madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

/* A sweep is over when its last core is done; a floor is the fastest of all sweeps. */
static double FastestSweep(const SweepTask* tasks, int count, int variant) {
  double fastest = 1e9;
  for (int round = 0; round < tasks[0].rounds; ++round) {
    double begin = tasks[0].times[variant][round].begin;
    double end = tasks[0].times[variant][round].end;
    for (int i = 1; i < count; ++i) {
      if (tasks[i].times[variant][round].begin < begin)
        begin = tasks[i].times[variant][round].begin;
      if (tasks[i].times[variant][round].end > end) end = tasks[i].times[variant][round].end;
    }
    const double seconds = (end - begin) / tasks[0].repeats;
    if (seconds < fastest) fastest = seconds;
  }
  return fastest;
}

static int ProbeSweep(int ranks, size_t bytes) {
  static SweepTask tasks[kMaxThreads];
  static Rank buffers[kMaxRanks];
  pthread_t threads[kMaxThreads];
  pthread_barrier_t barrier;
  int count = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (count > kMaxThreads) count = kMaxThreads;
  if (ranks < 1 || ranks > kMaxRanks || !__builtin_cpu_supports("avx2")) return 1;
  const size_t blocks = (bytes + kBlock - 1) / kBlock;
  for (int rank = 0; rank < ranks; ++rank) {
    buffers[rank] = AllocateHuge(blocks * kBlock);
    if (buffers[rank] == NULL) return 1;
  }
  /* Each timed round moves at least 4 MiB, so that the start at the barrier does not count. */
  const size_t working_set = (size_t)ranks * blocks * kBlock;
  const size_t repeats = 4194304 / working_set;
  pthread_barrier_init(&barrier, NULL, (unsigned)count);
  for (int i = 0; i < count; ++i) {
    tasks[i].cpu = i;
    tasks[i].buffers = buffers;
    tasks[i].ranks = ranks;
    tasks[i].first = blocks * (size_t)i / (size_t)count * kBlock;
    tasks[i].end = blocks * (size_t)(i + 1) / (size_t)count * kBlock;
    tasks[i].repeats = repeats < 1 ? 1 : (int)repeats;
    tasks[i].rounds = working_set > 33554432 ? kFewRounds : kMostRounds;
    tasks[i].barrier = &barrier;
    if (pthread_create(&threads[i], NULL, Sweep, &tasks[i]) != 0) return 1;
  }
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  for (int variant = 0; variant < kVariantCount; ++variant) {
    printf("%.9g ", FastestSweep(tasks, count, variant));
  }
  printf("\n");
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "line") == 0) return ProbeLine(atoi(argv[2]), atoi(argv[3]));
  if (argc == 4 && strcmp(argv[1], "sweep") == 0) {
    return ProbeSweep(atoi(argv[2]), strtoull(argv[3], NULL, 10));
  }
  if (argc == 3 && strcmp(argv[1], "burn") == 0) {
    /* Whatever ends the harness ends this, too. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return 1;
    Pin(atoi(argv[2]));
    for (;;) {
    }
  }
  fprintf(stderr, "usage: %s line CPU_A CPU_B | sweep RANKS BYTES | burn CPU\n", argv[0]);
  return 2;
}
