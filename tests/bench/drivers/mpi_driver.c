/* All-reduces on behalf of the benchmark, through whichever MPI this file was compiled with.
 *
 * Started by that MPI's launcher as `mpi_driver CONTROL_FOLDER`; control.h describes the work
 * lines. Besides the plain calls it knows what a careful MPI user does with a list of gradients:
 * one non-blocking call each, or packing them into buckets of 64 MiB.
 */
#define _GNU_SOURCE
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include "control.h"

typedef struct Bucket {
  size_t first; /* index of the first tensor */
  size_t end;   /* one past the last tensor */
  size_t elements;
  void* buffer;
} Bucket;

typedef struct Buffers {
  char key[kPathSize + 2 * kWordSize];
  size_t tensor_count;
  void** tensors;
  Bucket* buckets;
  size_t bucket_count;
  void* shared_bucket;   /* for all buckets, when each is finished before the next begins */
  MPI_Request* requests; /* one per tensor: more than any mode needs */
} Buffers;

static int g_rank;
static int g_size;

/* Sets *type; returns 0 when this MPI has no such type. */
static int FindType(const char* dtype, MPI_Datatype* type) {
  if (strcmp(dtype, "f32") == 0) {
    *type = MPI_FLOAT;
    return 1;
  }
#if defined(MPIX_C_FLOAT16) || defined(OMPI_HAVE_MPI_EXT_SHORTFLOAT)
  if (strcmp(dtype, "f16") == 0) {
    *type = MPIX_C_FLOAT16;
    return *type != MPI_DATATYPE_NULL;
  }
#endif
#if defined(MPIX_BFLOAT16)
  if (strcmp(dtype, "bf16") == 0) {
    *type = MPIX_BFLOAT16;
    return *type != MPI_DATATYPE_NULL;
  }
#endif
  return 0;
}

static void FreeBuffers(Buffers* buffers) {
  for (size_t i = 0; i < buffers->tensor_count; ++i) free(buffers->tensors[i]);
  for (size_t i = 0; i < buffers->bucket_count; ++i) free(buffers->buckets[i].buffer);
  free(buffers->shared_bucket);
  free(buffers->tensors);
  free(buffers->buckets);
  free(buffers->requests);
  memset(buffers, 0, sizeof(*buffers));
}

static void* AllocateZeroed(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 4096, bytes < 4096 ? 4096 : bytes) != 0) {
    fprintf(stderr, "cannot allocate %zu bytes\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  memset(memory, 0, bytes); /* touches every page: a first touch must not be timed */
  return memory;
}

/* Cuts the list into buckets of consecutive tensors; a tensor above the limit is a bucket by
 * itself. */
static void PlanBuckets(const Work* work, Buffers* buffers) {
  const size_t width = ElementBytes(work->dtype);
  buffers->buckets = (Bucket*)calloc(work->tensor_count, sizeof(Bucket));
  for (size_t i = 0; i < work->tensor_count; ++i) {
    Bucket* last = buffers->bucket_count == 0 ? NULL : &buffers->buckets[buffers->bucket_count - 1];
    if (last == NULL || (last->elements + work->counts[i]) * width > work->bucket_bytes) {
      last = &buffers->buckets[buffers->bucket_count++];
      last->first = i;
    }
    last->elements += work->counts[i];
    last->end = i + 1;
  }
  /* With everything ready at once, one bucket after the other goes through the same memory, which
   * is then the warmest; with gradients that appear over time, several are in flight. */
  size_t largest = 0;
  for (size_t i = 0; i < buffers->bucket_count; ++i) {
    const size_t bytes = buffers->buckets[i].elements * width;
    if (bytes > largest) largest = bytes;
    if (work->ready != NULL) buffers->buckets[i].buffer = AllocateZeroed(bytes);
  }
  if (work->ready == NULL) buffers->shared_bucket = AllocateZeroed(largest);
}

static void PrepareBuffers(const Work* work, Buffers* buffers) {
  const int wants_buckets = work->mode == kModeBucket;
  char key[kPathSize + 2 * kWordSize];
  snprintf(key, sizeof(key), "%s %s %d", work->counts_path, work->dtype, wants_buckets);
  if (strcmp(key, buffers->key) == 0) return;
  FreeBuffers(buffers);
  snprintf(buffers->key, sizeof(buffers->key), "%s", key);
  buffers->tensors = (void**)calloc(work->tensor_count, sizeof(void*));
  buffers->requests = (MPI_Request*)calloc(work->tensor_count, sizeof(MPI_Request));
  for (size_t i = 0; i < work->tensor_count; ++i) {
    buffers->tensors[i] = AllocateZeroed(work->counts[i] * ElementBytes(work->dtype));
  }
  buffers->tensor_count = work->tensor_count;
  if (wants_buckets) PlanBuckets(work, buffers);
}

/* Waits until `start + ready[index]`, lending the time to MPI so that calls in flight make
 * progress. */
static void AwaitReady(const Work* work, double start, size_t index, MPI_Request* requests,
                       int in_flight) {
  if (work->ready == NULL) return;
  int done = in_flight == 0;
  while (!done && NowSeconds() - start < work->ready[index]) {
    MPI_Testall(in_flight, requests, &done, MPI_STATUSES_IGNORE);
  }
  SleepUntil(start + work->ready[index]);
}

static void Pack(const Work* work, const Buffers* buffers, const Bucket* bucket) {
  char* at = (char*)bucket->buffer;
  for (size_t i = bucket->first; i < bucket->end; ++i) {
    const size_t bytes = work->counts[i] * ElementBytes(work->dtype);
    memcpy(at, buffers->tensors[i], bytes);
    at += bytes;
  }
}

static void Unpack(const Work* work, const Buffers* buffers, const Bucket* bucket) {
  const char* at = (const char*)bucket->buffer;
  for (size_t i = bucket->first; i < bucket->end; ++i) {
    const size_t bytes = work->counts[i] * ElementBytes(work->dtype);
    memcpy(buffers->tensors[i], at, bytes);
    at += bytes;
  }
}

static void RunBuckets(const Work* work, Buffers* buffers, MPI_Datatype type, double start) {
  if (work->ready == NULL) {
    for (size_t b = 0; b < buffers->bucket_count; ++b) {
      Bucket bucket = buffers->buckets[b];
      bucket.buffer = buffers->shared_bucket;
      Pack(work, buffers, &bucket);
      MPI_Allreduce(MPI_IN_PLACE, bucket.buffer, (int)bucket.elements, type, MPI_SUM,
                    MPI_COMM_WORLD);
      Unpack(work, buffers, &bucket);
    }
    return;
  }
  /* With gradients that appear over time, a bucket starts when its last tensor is there. */
  for (size_t b = 0; b < buffers->bucket_count; ++b) {
    Bucket* bucket = &buffers->buckets[b];
    AwaitReady(work, start, bucket->end - 1, buffers->requests, (int)b);
    Pack(work, buffers, bucket);
    MPI_Iallreduce(MPI_IN_PLACE, bucket->buffer, (int)bucket->elements, type, MPI_SUM,
                   MPI_COMM_WORLD, &buffers->requests[b]);
  }
  for (size_t b = 0; b < buffers->bucket_count; ++b) {
    MPI_Wait(&buffers->requests[b], MPI_STATUS_IGNORE);
    Unpack(work, buffers, &buffers->buckets[b]);
  }
}

static void RunOnce(const Work* work, Buffers* buffers, MPI_Datatype type) {
  const double start = work->ready == NULL ? 0 : NowSeconds();
  if (work->mode == kModeBucket) {
    RunBuckets(work, buffers, type, start);
    return;
  }
  const int blocking = work->mode == kModeBlocking;
  for (size_t i = 0; i < work->tensor_count; ++i) {
    AwaitReady(work, start, i, buffers->requests, blocking ? 0 : (int)i);
    if (blocking) {
      MPI_Allreduce(MPI_IN_PLACE, buffers->tensors[i], (int)work->counts[i], type, MPI_SUM,
                    MPI_COMM_WORLD);
    } else {
      MPI_Iallreduce(MPI_IN_PLACE, buffers->tensors[i], (int)work->counts[i], type, MPI_SUM,
                     MPI_COMM_WORLD, &buffers->requests[i]);
    }
  }
  if (!blocking) MPI_Waitall((int)work->tensor_count, buffers->requests, MPI_STATUSES_IGNORE);
}

/* Returns 0 when this rank holds a wrong sum. Leaves zeros behind, so that repeated sums stay
 * finite. */
static int CheckSums(const Work* work, Buffers* buffers, MPI_Datatype type) {
  int right = 1;
  for (size_t i = 0; i < work->tensor_count; ++i) {
    FillForCheck(buffers->tensors[i], work->dtype, g_rank, work->counts[i]);
  }
  RunOnce(work, buffers, type);
  for (size_t i = 0; i < work->tensor_count; ++i) {
    if (!HoldsSum(buffers->tensors[i], work->dtype, g_size, work->counts[i])) right = 0;
    memset(buffers->tensors[i], 0, work->counts[i] * ElementBytes(work->dtype));
  }
  MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return right;
}

static void Serve(const Work* work, Buffers* buffers, FILE* out) {
  static double seconds[kMaxSamples];
  MPI_Datatype type = MPI_DATATYPE_NULL;
  if (work->tensor_count == 0) {
    if (g_rank == 0) ReportProblem(out, work->id, "error", "empty or unreadable list of tensors");
    return;
  }
  if (!FindType(work->dtype, &type) || work->in_arena || work->mode == kModeNull) {
    if (g_rank == 0)
      ReportProblem(out, work->id, "unsupported", "no such data type, memory or mode");
    return;
  }
  PrepareBuffers(work, buffers);
  if (work->verify && !CheckSums(work, buffers, type)) {
    if (g_rank == 0) ReportProblem(out, work->id, "error", "wrong sum");
    return;
  }
  for (int sample = -work->warmup; sample < work->samples; ++sample) {
    MPI_Barrier(MPI_COMM_WORLD);
    AwaitCommonStart(work);
    const double start = NowSeconds();
    for (int k = 0; k < work->inner; ++k) RunOnce(work, buffers, type);
    if (sample >= 0) seconds[sample] = (NowSeconds() - start) / work->inner;
  }
  if (g_rank == 0) ReportSeconds(out, work->id, seconds, work->samples);
}

int main(int argc, char** argv) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (argc != 2) {
    fprintf(stderr, "usage: %s CONTROL_FOLDER\n", argv[0]);
    return 2;
  }
  if (RankFromEnvironment() >= 0) PinToCore(RankFromEnvironment());
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  PinToCore(g_rank);
  MPI_Get_library_version(version, &length);
  version[strcspn(version, "\n,\"")] = '\0';

  FILE* in = OpenInput(argv[1], g_rank);
  FILE* out = OpenOutput(argv[1]);
  if (in == NULL || out == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  if (g_rank == 0) ReportReady(out, version);
  Work work;
  Buffers buffers;
  memset(&buffers, 0, sizeof(buffers));
  while (ReadWork(in, &work)) {
    Serve(&work, &buffers, out);
    ReleaseWork(&work);
  }
  FreeBuffers(&buffers);
  fclose(in);
  fclose(out);
  MPI_Finalize();
  return 0;
}
