/* Tensors on a GPU: a part of ringd.h, which includes this. Since 1.5. */
#ifndef RINGD_CLIENT_RINGD_DEVICE_H_
#define RINGD_CLIENT_RINGD_DEVICE_H_

#include "client/ringd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Since 1.5. */
typedef struct {
  size_t struct_size;
  int32_t device;      /* CUDA's ordinal in this process */
  uint64_t slab_bytes; /* device memory for tensors in it, and copies of tensors in flight */
  /* RINGD_CUDA_LIBRARY; default libcuda.so.1. The driver that this process uses. */
  const char* cuda_library;
} ringd_device_options;

/* Since 1.5. Tensors on a GPU: ringd's engine makes device memory for this rank (its slab), which
 * this process maps; tensors in it are reduced there by NCCL, in ringd's process. Where that one
 * and this one can't use the GPU at the same time (no MPS), memory and NCCL are this process's, on
 * threads of the library's. Tensors elsewhere in the GPU's memory are copied into the slab and
 * back. Not yet run on a GPU. What is possible: all-reduce and broadcast; also on one node ringd
 * carries them out, not the ranks.
 *
 * Without NCCL, and for types that NCCL does not reduce, tensors take the host path: they are
 * copied to the arena and back, and reduced there as tensors in host memory are, with all types and
 * operators. A warning says so once, with the reason; ringd's setting device_launch, or
 * RINGD_HOST_PATH=1, ask for it. float8 goes to NCCL where there is one: before 2.24, and on GPUs
 * older than compute capability 9.0, its operations fail with that. If one rank of a communicator
 * can't use NCCL, all its ranks take the host path: so a rank's first ringd_register of a tensor on
 * a GPU there waits for the others to open theirs, for the start timeout at most.
 *
 * Opens the GPU and makes the slab, in CUDA's primary context. Blocks, 60 s at most. A context has
 * one GPU.
 *   RINGD_NOT_FOUND: here or in ringd there is no such GPU, or no library of CUDA, or of NCCL where
 *   device_launch wants it.
 *   RINGD_FAILED_PRECONDITION: a library is too old.
 *   RINGD_RESOURCE_EXHAUSTED: so much device memory is not free, or more than ringd's setting
 *   max_slab. RINGD_ALREADY_EXISTS: one is open.
 *   The messages name library, GPU, amounts and setting. */
RINGD_EXPORT ringd_status ringd_device_open(ringd_context* context,
                                            const ringd_device_options* options);
/* Since 1.5. Memory of the slab, for tensors that shall not be copied: a device pointer, aligned to
 * 64 bytes, contents undefined but when it is used first (zero). Does not block.
 *   RINGD_RESOURCE_EXHAUSTED: the slab is full; the message names slab_bytes. */
RINGD_EXPORT ringd_status ringd_device_alloc(ringd_context* context, size_t bytes, void** address);
/* Since 1.5. Must not be in use by an operation, nor by work on a stream. NULL is allowed. */
RINGD_EXPORT void ringd_device_free(ringd_context* context, void* address);
/* Since 1.5. As ringd_submit, for a tensor in device memory. The source is taken to be ready when
 * `stream` (a CUstream or cudaStream_t of this context's GPU; NULL: the default stream) has done
 * all that was put on it before. Returns at once but for want of room. The destination must not be
 * touched before the operation has ended, or by work on a stream before ringd_stream_wait.
 * `source` and `destination` lie anywhere in this GPU's memory. For what is outside of the slab the
 * library takes a block there until the operation has been waited for: the source is copied to it
 * on `stream`, the result from it by ringd_stream_wait or ringd_wait. Blocks are kept for later
 * operations. Source and destination stay allocated until those copies have run.
 *   RINGD_INVALID_ARGUMENT: a tensor in host memory, on another GPU, in memory that has been freed,
 *   or partly in the slab; a stream of another GPU.
 *   RINGD_RESOURCE_EXHAUSTED: no room in the slab, or on the host path in the arena; the message
 *   says how much, and the setting.
 *   Operations that have been waited for give their blocks back; up to a second is waited for
 *   streams that still use some.
 *   RINGD_FAILED_PRECONDITION: no GPU is open; the stream is being captured into a graph. */
RINGD_EXPORT ringd_status ringd_submit_on_stream(ringd_context* context,
                                                 ringd_registration registration,
                                                 const void* source, void* destination,
                                                 void* stream, ringd_operation* operation);
/* Since 1.5. What is put on `stream` from now on runs when the operation, of
 * ringd_submit_on_stream, has its result in `destination`. Does not wait for the result, nor
 * consume the operation, which is still to be waited for. Where this process launches
 * (device_launch) it waits until the operation is on a stream, so until all ranks have submitted
 * it, but for 5 s at most. On a GPU without stream memory operations it waits until the operation
 * has ended, so ranks must wait in one order; RINGD_CANCELLED if the context's
 * is_interrupted says so. A destination outside of the slab gets the result by a copy on the first
 * stream that waits; then ringd_wait does not wait for that copy, and only work behind it may use
 * the destination: on this stream, on others that have called this before ringd_wait, or after the
 * host has waited for one of them. Without any call of this, ringd_wait copies, and waits for it.
 * If the job fails, the stream goes on, with undefined content of the destination (a copy of
 * undefined bytes, too), and the wait for the operation says why. */
RINGD_EXPORT ringd_status ringd_stream_wait(ringd_context* context, ringd_operation operation,
                                            void* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RINGD_CLIENT_RINGD_DEVICE_H_ */
