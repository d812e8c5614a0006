// Memory of a GPU that somebody else has allocated: whether it is that, and copies within the GPU.
#ifndef RINGD_BACKENDS_CUDA_DEVICE_COPY_H_
#define RINGD_BACKENDS_CUDA_DEVICE_COPY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "backends/cuda/cuda_context.h"

namespace ringd {

// Ok if all of [address, address + bytes) is memory of the context's GPU now, allocated in one
// piece or in several that follow each other (as an allocator maps them that grows its segments).
// Somebody may free it in the next moment. Does not wait for the GPU; any thread.
//   kInvalidArgument: it is not; the message says what it is, as far as CUDA knows.
//   Others as CudaStatus says.
absl::Status CheckOnDevice(const CudaContext& context, DeviceAddress address, std::uint64_t bytes);

// Enqueues on `stream`: copy within the GPU. The ranges must not overlap. Any thread.
//   kInvalidArgument: `stream` is none of the context's GPU, or a range is no memory.
//   Others as CudaStatus says.
absl::Status EnqueueCopy(const CudaContext& context, DeviceAddress to, DeviceAddress from,
                         std::uint64_t bytes, StreamHandle stream);

// The same to and from memory of the host, which is to be registered (registered_memory.h): else
// the calling thread may be kept waiting for the stream.
absl::Status EnqueueCopyToHost(const CudaContext& context, void* to, DeviceAddress from,
                               std::uint64_t bytes, StreamHandle stream);
absl::Status EnqueueCopyFromHost(const CudaContext& context, DeviceAddress to, const void* from,
                                 std::uint64_t bytes, StreamHandle stream);

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_DEVICE_COPY_H_
