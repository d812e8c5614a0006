#include "backends/cuda/move_kernel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/kernels/kernel_images.h"

namespace ringd {
namespace {

// Blocks for each multiprocessor: enough to keep memory busy, and few enough to leave room for the
// trainer's kernels.
constexpr unsigned kBlocksPerMultiprocessor = 2;

// FNV-1a over words: a first look, before all bytes are compared.
std::uint64_t HashOf(std::span<const MoveSegment> segments) {
  static_assert(sizeof(MoveSegment) % sizeof(std::uint64_t) == 0);
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto* const bytes = reinterpret_cast<const char*>(segments.data());
  for (std::size_t at = 0; at < segments.size_bytes(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, sizeof word);
    hash = (hash ^ word) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MoveKernel>> MoveKernel::Load(
    std::shared_ptr<const CudaContext> context) {
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context->driver();
  std::shared_ptr<MoveKernel> kernel(new MoveKernel(context));
  CUmodule module = nullptr;
  const absl::Status loaded = CudaStatus(cuda, "cuModuleLoadData of ringd's kernels",
                                         cuda.cuModuleLoadData(&module, KernelImages().data()));
  if (absl::IsFailedPrecondition(loaded)) {
    return absl::FailedPreconditionError(
        absl::StrCat(loaded.message(), ": the driver, for CUDA ", CudaVersionText(cuda.version),
                     ", or the GPU is too old for ringd's kernels"));
  }
  if (!loaded.ok()) return loaded;
  kernel->module_ = module;
  CUfunction function = nullptr;
  if (auto status = CudaStatus(cuda, "cuModuleGetFunction",
                               cuda.cuModuleGetFunction(&function, module, kMoveKernel));
      !status.ok()) {
    return status;
  }
  kernel->function_ = function;
  return std::shared_ptr<const MoveKernel>(std::move(kernel));
}

MoveKernel::~MoveKernel() {
  if (module_ == nullptr) return;
  const ScopedContext current(*context_);
  context_->driver().cuModuleUnload(static_cast<CUmodule>(module_));
}

absl::Status MoveKernel::Launch(StreamHandle stream, const MovePlan& plan,
                                DeviceAddress table) const {
  if (plan.tile_count() == 0) return absl::OkStatus();
  const ScopedContext current(*context_);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context_->driver();
  CUdeviceptr address = table;
  auto segment_count = static_cast<std::uint32_t>(plan.segments().size());
  std::uint32_t tile_count = plan.tile_count();
  void* parameters[] = {&address, &segment_count, &tile_count};
  const unsigned most =
      kBlocksPerMultiprocessor * static_cast<unsigned>(std::max(context_->multiprocessors(), 1));
  return CudaStatus(cuda, "cuLaunchKernel",
                    cuda.cuLaunchKernel(static_cast<CUfunction>(function_), plan.BlockCount(most),
                                        1, 1, kMoveThreads, 1, 1, 0, static_cast<CUstream>(stream),
                                        parameters, nullptr));
}

absl::StatusOr<DeviceAddress> MoveTables::Find(std::span<const MoveSegment> segments,
                                               std::uint64_t use, std::uint64_t finished) {
  const std::uint64_t hash = HashOf(segments);
  Place* oldest = nullptr;
  for (Place& place : places_) {
    if (place.count == segments.size() && place.hash == hash &&
        std::memcmp(place.staging.data(), segments.data(), segments.size_bytes()) == 0) {
      place.last_use = use;
      return place.table.address();
    }
    if (oldest == nullptr || place.last_use < oldest->last_use) oldest = &place;
  }
  if (oldest->last_use > finished) {
    return absl::UnavailableError("all tables of the packing kernel are in use");
  }
  if (auto status = Fill(segments, oldest); !status.ok()) return status;
  oldest->hash = hash;
  oldest->count = segments.size();
  oldest->last_use = use;
  return oldest->table.address();
}

absl::Status MoveTables::Fill(std::span<const MoveSegment> segments, Place* place) {
  const std::size_t bytes = segments.size_bytes();
  place->count = 0;
  if (place->table.bytes() < bytes) {
    const std::size_t rounded = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
    auto staging = PinnedMemory::Allocate(context_, rounded);
    if (!staging.ok()) return staging.status();
    auto table = DeviceMemory::Allocate(context_, rounded);
    if (!table.ok()) return table.status();
    retired_.emplace_back(std::exchange(place->staging, *std::move(staging)),
                          std::exchange(place->table, *std::move(table)));
  }
  std::memcpy(place->staging.data(), segments.data(), bytes);
  const CudaDriver& cuda = context_->driver();
  return CudaStatus(cuda, "cuMemcpyHtoDAsync",
                    cuda.cuMemcpyHtoDAsync(place->table.address(), place->staging.data(), bytes,
                                           static_cast<CUstream>(stream_.handle())));
}

}  // namespace ringd
