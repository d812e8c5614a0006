// The kernel that packs and unpacks, loaded, and its tables in device memory.
#ifndef RINGD_BACKENDS_CUDA_MOVE_KERNEL_H_
#define RINGD_BACKENDS_CUDA_MOVE_KERNEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"
#include "backends/cuda/cuda_stream.h"
#include "backends/cuda/device_memory.h"
#include "backends/cuda/kernels/move_plan.h"

namespace ringd {

// Thread safety: Launch on any thread. Ownership: shares the context.
class MoveKernel {
 public:
  // Loads the images that this program carries. Blocks: where none of them fits the GPU, the driver
  // compiles the PTX, which takes a second.
  //   kFailedPrecondition: the GPU is older than sm_80, or the driver too old for the images.
  //   Others as CudaStatus says.
  static absl::StatusOr<std::shared_ptr<const MoveKernel>> Load(
      std::shared_ptr<const CudaContext> context);
  ~MoveKernel();
  MoveKernel(const MoveKernel&) = delete;
  MoveKernel& operator=(const MoveKernel&) = delete;

  // Enqueues the work of `plan`, whose segments are at `table`: one launch, none of an empty plan.
  // As CudaStatus says.
  absl::Status Launch(StreamHandle stream, const MovePlan& plan, DeviceAddress table) const;

 private:
  explicit MoveKernel(std::shared_ptr<const CudaContext> context) : context_(std::move(context)) {}

  std::shared_ptr<const CudaContext> context_;
  void* module_ = nullptr;    // a CUmodule
  void* function_ = nullptr;  // a CUfunction
};

// Tables that are on the GPU already: training repeats its buckets, and a bucket that has been seen
// before costs no copy. Each of kTables places holds one; the one not used for longest goes first.
//
// Uses are numbered in the order in which they are enqueued on the one stream.
//
// Thread safety: one thread. Ownership: shares the context; must not go before the GPU is done with
// what was enqueued.
class MoveTables {
 public:
  static constexpr std::size_t kTables = 64;

  // `stream` outlives this object.
  MoveTables(std::shared_ptr<const CudaContext> context, const CudaStream& stream)
      : context_(std::move(context)), stream_(stream), places_(kTables) {}

  // Where the table of `segments` is on the GPU for what is enqueued on the stream next, for the
  // use with number `use`. Enqueues a copy unless it is there. All uses up to `finished` are over.
  // Allocates only where the table is new and larger than what its place has held.
  //   kUnavailable: all places are in use; ask again when one is over.  Others as CudaStatus says.
  absl::StatusOr<DeviceAddress> Find(std::span<const MoveSegment> segments, std::uint64_t use,
                                     std::uint64_t finished);

 private:
  struct Place {
    std::uint64_t hash = 0;
    std::size_t count = 0;  // of segments; 0: empty
    std::uint64_t last_use = 0;
    PinnedMemory staging;
    DeviceMemory table;
  };

  absl::Status Fill(std::span<const MoveSegment> segments, Place* place);

  std::shared_ptr<const CudaContext> context_;
  const CudaStream& stream_;
  std::vector<Place> places_;
  // Too small by now. Freeing would wait for all of the GPU's work, be it a collective that hangs.
  std::vector<std::pair<PinnedMemory, DeviceMemory>> retired_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_MOVE_KERNEL_H_
