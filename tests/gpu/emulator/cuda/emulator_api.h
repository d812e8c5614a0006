/* What the emulated CUDA driver offers beside CUDA's own functions: to tests, to bodies of kernels,
 * and to the emulated NCCL. A real libcuda.so.1 has none of it.
 *
 * Plain C, so that it can be looked up with dlsym in a library that was opened by its file name.
 * Every function may be called on any thread. None needs a current context.
 */
#ifndef RINGD_TESTS_GPU_EMULATOR_CUDA_EMULATOR_API_H_
#define RINGD_TESTS_GPU_EMULATOR_CUDA_EMULATOR_API_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The emulator's own readable and writable view of `bytes` bytes from `device_pointer`. Null unless
 * all of them lie in one live allocation of this process (host memory that CUDA knows included).
 * It doesn't look at which device may use the memory: RingdEmulatorLaunch::alias does. Holds until
 * the memory is freed or unmapped. */
void* ringd_emulator_alias(unsigned long long device_pointer, size_t bytes);

/* The same as seen from `device`: null also where that device has no access to the memory (another
 * GPU's without peer access, mapped memory without cuMemSetAccess). */
void* ringd_emulator_device_alias(int device, unsigned long long device_pointer, size_t bytes);

/* Enqueues `work` on `stream` (a CUstream of the current process, not null), behind what is there.
 * The stream's thread calls it until it has ended, `stopping` being 0:
 *   0   done: the stream goes on.
 *   >0  not yet: asked again after as many microseconds, at most 1000. The stream waits meanwhile
 *       and the device is free for other processes' slices.
 *   <0  failed: the negated CUresult becomes this process's sticky error.
 * Called once, and for the last time, with `stopping` 1 if the stream will not run it (the process
 * has a sticky error, or its context is gone): it then only releases what `arg` owns.
 * Returns a CUresult. If that is not 0, `work` is never called. */
int ringd_emulator_enqueue(void* stream, int (*work)(void* arg, int stopping), void* arg);

/* How often the function of that name has been called in this process: "cuMemAlloc", without a
 * version's suffix. Three names stand for many:
 *   "*"              every call
 *   "synchronising"  calls that waited for the device (cuStreamSynchronize, cuMemFree, a copy of
 *                    memory that is not page-locked, ...)
 *   "allocating"     calls that made or freed memory, streams, events or modules
 * 0 for a name never called. */
unsigned long long ringd_emulator_calls(const char* name);

/* The ordinal of the device to which `stream` belongs; -1 if this is no live stream. */
int ringd_emulator_stream_device(void* stream);

/* Gives a fatal error to `device`: each process of the pretended machine that has a context there
 * gets `result`, a CUresult, as its sticky error. Device memory keeps its content. */
void ringd_emulator_fail_device(int device, int result);

/* A kernel's launch, as its body sees it. */
typedef struct RingdEmulatorLaunch {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  int device;
  /* ringd_emulator_device_alias. A body that gets null returns CUDA_ERROR_ILLEGAL_ADDRESS. */
  void* (*alias)(int device, unsigned long long device_pointer, size_t bytes);
} RingdEmulatorLaunch;

/* A kernel: the same body as on the GPU, compiled for the host. */
typedef struct RingdEmulatorKernel {
  /* As in cuModuleGetFunction. Null ends a table. */
  const char* name;
  /* Runs the whole grid, on the stream's thread. `parameters` are copies of cuLaunchKernel's. Must
   * not wait for anything. Returns a CUresult; not 0 is this process's sticky error. */
  int (*run)(const RingdEmulatorLaunch* launch, const void* const* parameters);
  unsigned parameter_count;
  const size_t* parameter_bytes;
} RingdEmulatorKernel;

/* What a library of kernels (RINGD_EMULATOR_CUDA_KERNELS) exports. */
const RingdEmulatorKernel* ringd_emulator_kernels(void);

#ifdef __cplusplus
}
#endif

#endif /* RINGD_TESTS_GPU_EMULATOR_CUDA_EMULATOR_API_H_ */
