/* Probes the machine: a benchmark here means little without its state.
 *
 *   probe line CPU_A CPU_B            round trip of one cache line between two cores, ns (median of rounds)
 *   probe copy BYTES                  copies per second of a buffer cut over all cores, bytes/s, plain and
 *                                     with non-temporal stores
 *   probe burn CPU                    occupies one core until it is ended
 *
 * Prints one number (or two) on one line.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kRounds = 9, kTripsPerRound = 2000, kMaxThreads = 64, kCopyRounds = 7 };

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

typedef struct CopyTask {
  int cpu;
  char* source;
  char* target;
  size_t bytes;
  int repeats;
  pthread_barrier_t* barrier;
  double plain_seconds[kCopyRounds];
  double streaming_seconds[kCopyRounds];
} CopyTask;

__attribute__((target("avx2"))) static void CopyStreaming(char* target, const char* source,
                                                          size_t bytes) {
  for (size_t i = 0; i + 32 <= bytes; i += 32) {
    _mm256_stream_si256((__m256i*)(target + i), _mm256_load_si256((const __m256i*)(source + i)));
  }
  _mm_sfence();
}

static void* Copy(void* argument) {
  CopyTask* task = (CopyTask*)argument;
  Pin(task->cpu);
  const int can_stream = __builtin_cpu_supports("avx2");
  memset(task->source, 1, task->bytes);
  memset(task->target, 2, task->bytes);
  for (int round = 0; round < kCopyRounds; ++round) {
    pthread_barrier_wait(task->barrier);
    double start = Now();
    for (int k = 0; k < task->repeats; ++k) {
      memcpy(task->target, task->source, task->bytes);
      __asm__ volatile("" ::: "memory");
    }
    task->plain_seconds[round] = (Now() - start) / task->repeats;
    pthread_barrier_wait(task->barrier);
    start = Now();
    for (int k = 0; k < task->repeats && can_stream; ++k) {
      CopyStreaming(task->target, task->source, task->bytes);
    }
    task->streaming_seconds[round] = can_stream ? (Now() - start) / task->repeats : 1e9;
  }
  return NULL;
}

/* On huge pages where the system grants them: a floor has to be the best that the machine can do. */
static char* AllocateHuge(size_t bytes) {
  const size_t huge = (size_t)2 << 20;
  const size_t rounded = (bytes + huge - 1) / huge * huge;
  char* memory = (char*)aligned_alloc(huge, rounded);
  if (memory != NULL) madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

/* A floor is what the machine can do at its best. */
static double Fastest(const double* values) {
  double fastest = values[0];
  for (int i = 1; i < kCopyRounds; ++i) fastest = values[i] < fastest ? values[i] : fastest;
  return fastest;
}

static int ProbeCopy(size_t bytes) {
  static CopyTask tasks[kMaxThreads];
  pthread_t threads[kMaxThreads];
  pthread_barrier_t barrier;
  int count = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (count > kMaxThreads) count = kMaxThreads;
  const size_t share = (bytes / (size_t)count + 4095) / 4096 * 4096;
  const size_t repeats = 4194304 / share; /* each timed round moves at least 4 MiB per core */
  pthread_barrier_init(&barrier, NULL, (unsigned)count);
  for (int i = 0; i < count; ++i) {
    tasks[i].cpu = i;
    tasks[i].bytes = share;
    tasks[i].repeats = repeats < 1 ? 1 : (int)repeats;
    tasks[i].barrier = &barrier;
    tasks[i].source = AllocateHuge(share);
    tasks[i].target = AllocateHuge(share);
    if (tasks[i].source == NULL || tasks[i].target == NULL) return 1;
    if (pthread_create(&threads[i], NULL, Copy, &tasks[i]) != 0) return 1;
  }
  double plain = 0;
  double streaming = 0;
  for (int i = 0; i < count; ++i) {
    pthread_join(threads[i], NULL);
    plain += (double)share / Fastest(tasks[i].plain_seconds);
    streaming += (double)share / Fastest(tasks[i].streaming_seconds);
  }
  printf("%.0f %.0f\n", plain, streaming);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "line") == 0) return ProbeLine(atoi(argv[2]), atoi(argv[3]));
  if (argc == 3 && strcmp(argv[1], "copy") == 0) return ProbeCopy(strtoull(argv[2], NULL, 10));
  if (argc == 3 && strcmp(argv[1], "burn") == 0) {
    Pin(atoi(argv[2]));
    for (;;) {
    }
  }
  fprintf(stderr, "usage: %s line CPU_A CPU_B | copy BYTES | burn CPU\n", argv[0]);
  return 2;
}
