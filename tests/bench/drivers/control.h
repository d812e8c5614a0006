/* The harness's side channel, as the C and C++ drivers see it.
 *
 * One folder per set of processes: `in.<rank>` is a FIFO on which every rank receives the same work
 * lines, `out` is the FIFO on which rank 0 answers with one JSON line per work line (another rank
 * writes there only to report an error). A rank without work is blocked in read(), so an idle peer
 * costs no processor time while another one is measured.
 *
 * A work line is `key=value` pairs separated by spaces:
 *   id=7 dtype=f32 mode=blocking memory=ordinary wait=spin inner=1 samples=5 warmup=1
 *   bucket=67108864 verify=1 counts=/path ready=/path
 * `counts` names a file with the element count of each tensor, one per line; `ready` (optional) one
 * with the microsecond at which each tensor becomes available.
 *
 * Thread safety: one thread. Ownership: Work owns the arrays it loaded; ReleaseWork() frees them.
 */
#ifndef RINGD_TESTS_BENCH_DRIVERS_CONTROL_H_
#define RINGD_TESTS_BENCH_DRIVERS_CONTROL_H_

#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* C reads this header too: NOLINTBEGIN(modernize-use-nullptr) */

enum { kWordSize = 64, kPathSize = 512, kMaxSamples = 4096 };

typedef enum WorkMode {
  kModeBlocking, /* one blocking call per tensor */
  kModeAsync,    /* one asynchronous call per tensor, then waiting for all */
  kModeBucket,   /* the caller packs the list into buckets */
  kModeNull,     /* nothing but the way to ringd and back; no peer has it */
} WorkMode;

typedef struct Work {
  int id;
  char dtype[kWordSize]; /* f32, f16, bf16, f8e4m3, f8e5m2 */
  WorkMode mode;
  int in_arena;   /* tensors allocated from ringd's arena; no peer has it */
  int sleep_wait; /* wait by sleeping at once, without spinning; no MPI has it */
  int inner;      /* calls per sample */
  int samples;
  int warmup; /* samples that are run and dropped first */
  int verify;
  size_t bucket_bytes;
  size_t tensor_count;
  size_t* counts; /* elements of each tensor */
  double* ready;  /* seconds at which each tensor is ready, or NULL */
  char counts_path[kPathSize];
} Work;

static inline double NowSeconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A sleep ends up to so much late (timer slack, waking up): what is to be on time sleeps so much
 * less and spins. */
static const double kSleepMargin = 150e-6;

/* Returns at `when`, as NowSeconds() counts: gradients that are computed elsewhere are there then,
 * and a late sleeper's delay would be taken for the library's. */
static inline void SleepUntil(double when) {
  const double sleep = when - NowSeconds() - kSleepMargin;
  if (sleep > 0) usleep((useconds_t)(sleep * 1e6));
  while (NowSeconds() < when) {
  }
}

/* After a barrier, which lets go some ranks sooner than others: where gradients appear over time,
 * all begin together at the next beat. All ranks run on one machine, and so by one clock. */
static inline void AwaitCommonStart(const Work* work) {
  static const double kBeat = 10e-3;
  if (work->ready == NULL) return;
  SleepUntil((double)((long long)(NowSeconds() / kBeat) + 1) * kBeat);
}

/* Pins the calling process to a core by its rank. Called before any library starts threads. */
static inline void PinToCore(int rank) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)(rank % (cores > 0 ? (int)cores : 1)), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

/* The rank that a launcher gave through the environment, or -1. */
static inline int RankFromEnvironment(void) {
  static const char* const kNames[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
  for (size_t i = 0; i < sizeof(kNames) / sizeof(kNames[0]); ++i) {
    const char* value = getenv(kNames[i]);
    if (value != NULL) return atoi(value);
  }
  return -1;
}

/* Bytes of one element, 0 for a type that is unknown here. */
static inline size_t ElementBytes(const char* dtype) {
  if (strcmp(dtype, "f32") == 0) return 4;
  if (strcmp(dtype, "f16") == 0 || strcmp(dtype, "bf16") == 0) return 2;
  if (strcmp(dtype, "f8e4m3") == 0 || strcmp(dtype, "f8e5m2") == 0) return 1;
  return 0;
}

/* The bits of a small positive integer in `dtype`: exact for every value that the check uses. */
static inline uint32_t EncodeInteger(const char* dtype, unsigned value) {
  unsigned exponent = 0;
  while ((value >> (exponent + 1)) != 0) ++exponent;
  const uint32_t fraction = value - (1u << exponent); /* below 2^exponent */
  const struct {
    const char* name;
    int bias;
    int fraction_bits;
  } kFormats[] = {
      {"f32", 127, 23}, {"f16", 15, 10}, {"bf16", 127, 7}, {"f8e4m3", 7, 3}, {"f8e5m2", 15, 2}};
  for (size_t i = 0; i < sizeof(kFormats) / sizeof(kFormats[0]); ++i) {
    if (strcmp(dtype, kFormats[i].name) != 0) continue;
    const int shift = kFormats[i].fraction_bits - (int)exponent;
    const uint32_t bits = shift >= 0 ? fraction << shift : fraction >> -shift;
    return ((uint32_t)((int)exponent + kFormats[i].bias) << kFormats[i].fraction_bits) | bits;
  }
  return 0;
}

/* What rank `rank` puts at element `index`: 1 or 2 by rank, doubled at odd places, so that a
 * missing rank, a rank counted twice and a shifted tensor all show in the sum. */
static inline unsigned ContributionAt(int rank, size_t index) {
  return (rank % 2 == 0 ? 1u : 2u) << (index % 2);
}

static inline void FillForCheck(void* buffer, const char* dtype, int rank, size_t count) {
  const size_t bytes = ElementBytes(dtype);
  const uint32_t even = EncodeInteger(dtype, ContributionAt(rank, 0));
  const uint32_t odd = EncodeInteger(dtype, ContributionAt(rank, 1));
  char* at = (char*)buffer;
  for (size_t i = 0; i < count; ++i, at += bytes) memcpy(at, i % 2 == 0 ? &even : &odd, bytes);
}

/* True when `buffer` holds the sum of all ranks' contributions. */
static inline int HoldsSum(const void* buffer, const char* dtype, int size, size_t count) {
  const size_t bytes = ElementBytes(dtype);
  unsigned even_sum = 0;
  unsigned odd_sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    even_sum += ContributionAt(rank, 0);
    odd_sum += ContributionAt(rank, 1);
  }
  const uint32_t even = EncodeInteger(dtype, even_sum);
  const uint32_t odd = EncodeInteger(dtype, odd_sum);
  const char* at = (const char*)buffer;
  for (size_t i = 0; i < count; ++i, at += bytes) {
    if (memcmp(at, i % 2 == 0 ? &even : &odd, bytes) != 0) return 0;
  }
  return 1;
}

/* Loads a file of one number per line. Returns the count of numbers; the caller frees *numbers. */
static inline size_t LoadNumbers(const char* path, double** numbers) {
  FILE* file = fopen(path, "r");
  if (file == NULL) return 0;
  size_t count = 0;
  size_t room = 0;
  double value;
  *numbers = NULL;
  while (fscanf(file, "%lf", &value) == 1) {
    if (count == room) {
      room = room == 0 ? 64 : 2 * room;
      *numbers = (double*)realloc(*numbers, room * sizeof(double));
    }
    (*numbers)[count++] = value;
  }
  fclose(file);
  return count;
}

static inline void ReleaseWork(Work* work) {
  free(work->counts);
  free(work->ready);
  work->counts = NULL;
  work->ready = NULL;
}

static inline WorkMode ModeFromName(const char* name) {
  if (strcmp(name, "async") == 0) return kModeAsync;
  if (strcmp(name, "bucket") == 0) return kModeBucket;
  if (strcmp(name, "null") == 0) return kModeNull;
  return kModeBlocking;
}

static inline void TakePair(Work* work, const char* key, const char* value, char* ready_path) {
  if (strcmp(key, "id") == 0) work->id = atoi(value);
  if (strcmp(key, "dtype") == 0) snprintf(work->dtype, kWordSize, "%s", value);
  if (strcmp(key, "mode") == 0) work->mode = ModeFromName(value);
  if (strcmp(key, "memory") == 0) work->in_arena = strcmp(value, "arena") == 0;
  if (strcmp(key, "wait") == 0) work->sleep_wait = strcmp(value, "block") == 0;
  if (strcmp(key, "inner") == 0) work->inner = atoi(value);
  if (strcmp(key, "samples") == 0) work->samples = atoi(value);
  if (strcmp(key, "warmup") == 0) work->warmup = atoi(value);
  if (strcmp(key, "verify") == 0) work->verify = atoi(value);
  if (strcmp(key, "bucket") == 0) work->bucket_bytes = strtoull(value, NULL, 10);
  if (strcmp(key, "counts") == 0) snprintf(work->counts_path, kPathSize, "%s", value);
  if (strcmp(key, "ready") == 0) snprintf(ready_path, kPathSize, "%s", value);
}

/* Reads the next work line. Blocks. Returns 0 at the end of the input or on `quit`. */
static inline int ReadWork(FILE* in, Work* work) {
  char line[2048];
  char ready_path[kPathSize] = "";
  if (fgets(line, sizeof(line), in) == NULL || strncmp(line, "quit", 4) == 0) return 0;
  memset(work, 0, sizeof(*work));
  work->inner = work->samples = 1;
  char* rest = NULL;
  for (char* word = strtok_r(line, " \n", &rest); word != NULL;
       word = strtok_r(NULL, " \n", &rest)) {
    char* value = strchr(word, '=');
    if (value == NULL) continue;
    *value = '\0';
    TakePair(work, word, value + 1, ready_path);
  }
  double* numbers = NULL;
  work->tensor_count = LoadNumbers(work->counts_path, &numbers);
  work->counts = (size_t*)calloc(work->tensor_count + 1, sizeof(size_t));
  for (size_t i = 0; i < work->tensor_count; ++i) work->counts[i] = (size_t)numbers[i];
  free(numbers);
  if (ready_path[0] != '\0') {
    LoadNumbers(ready_path, &work->ready);
    for (size_t i = 0; i < work->tensor_count; ++i) work->ready[i] *= 1e-6;
  }
  if (work->samples > kMaxSamples) work->samples = kMaxSamples;
  return 1;
}

/* Opens this rank's end of the side channel; NULL (with a message) when the folder is not what it
 * should be. */
static inline FILE* OpenInput(const char* folder, int rank) {
  char path[kPathSize];
  snprintf(path, sizeof(path), "%s/in.%d", folder, rank);
  FILE* in = fopen(path, "r");
  if (in == NULL) perror(path);
  return in;
}

static inline FILE* OpenOutput(const char* folder) {
  char path[kPathSize];
  snprintf(path, sizeof(path), "%s/out", folder);
  FILE* out = fopen(path, "w");
  if (out == NULL) perror(path);
  return out;
}

static inline void ReportReady(FILE* out, const char* version) {
  fprintf(out, "{\"id\":0,\"ready\":\"%s\"}\n", version);
  fflush(out);
}

static inline void ReportSeconds(FILE* out, int id, const double* seconds, int count) {
  fprintf(out, "{\"id\":%d,\"seconds\":[", id);
  for (int i = 0; i < count; ++i) fprintf(out, "%s%.9g", i == 0 ? "" : ",", seconds[i]);
  fprintf(out, "]}\n");
  fflush(out);
}

/* `kind` is "error" (the run is worthless) or "unsupported" (this peer cannot do this work). */
static inline void ReportProblem(FILE* out, int id, const char* kind, const char* text) {
  fprintf(out, "{\"id\":%d,\"%s\":\"%s\"}\n", id, kind, text);
  fflush(out);
}

/* NOLINTEND(modernize-use-nullptr) */

#endif /* RINGD_TESTS_BENCH_DRIVERS_CONTROL_H_ */
