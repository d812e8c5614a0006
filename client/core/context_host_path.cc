// A context's GPU where its tensors are reduced in the host's memory.
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/nccl/nccl_types.h"
#include "client/core/context.h"
#include "proto/operations/operation_traits.h"

namespace ringd::client {
namespace {

constexpr char kSlabSetting[] = "slab_bytes of ringd_device_open";

}  // namespace

absl::Status Context::UseHostPath(const std::string& why) {
  const absl::StatusOr<HostPath*> path = OpenHostPath();
  if (!path.ok()) {
    return why.empty()
               ? path.status()
               : absl::Status(path.status().code(),
                              absl::StrCat(why, "; nor can its tensors go through host memory: ",
                                           path.status().message()));
  }
  if (!why.empty()) {
    on_warning_(absl::StrCat("GPU tensors of rank ", places_.rank,
                             " go through host memory, which is slow: ", why));
  }
  return absl::OkStatus();
}

absl::StatusOr<HostPath*> Context::OpenHostPath() {
  if (HostPath* const path = host_path_now_.load(std::memory_order_acquire)) return path;
  HostPath::Carrier carrier;
  carrier.submit = [](Registration& tensor, void* address) {
    return tensor.lane.way->Submit(tensor, address, address, WhenFull::kFail);
  };
  carrier.queue_of = [](const Registration& tensor) -> OperationQueue& {
    return tensor.lane.way->queue();
  };
  carrier.orders_of = [this](const Registration& tensor) {
    const bool in_pieces =
        tensor.lane.way == &wire_lane_ && tensor.bytes >= StagedCopies::kLeastBytes;
    return in_pieces ? staged_copies_.OrdersFor(tensor) : StagedCopies::Orders();
  };
  carrier.submit_in_pieces = [this](Registration& tensor, void* address) {
    return ring_operations_.SubmitInPieces(tensor, arena_.OffsetOf(address));
  };
  carrier.tell_piece = [this](std::uint32_t progress, std::uint32_t piece) {
    ring_operations_.TellPiece(progress, piece);
  };
  carrier.final_pieces = [this](std::uint32_t progress) {
    return staged_copies_.FinalPieces(progress);
  };
  carrier.conclude = [this](const OperationOutcome& outcome, const OperationEnd& end) {
    staging_.Finish(end, outcome.status == 0);
    return outcome.status == 0 ? absl::OkStatus() : DescribeFailure(outcome, *end.registration);
  };
  carrier.give_up = [this](const absl::Status& why) {
    state_.Lose(why);
    EndPart(Farewell::kAbandon);
  };
  const MutexLock lock(host_path_mutex_);
  if (host_path_ != nullptr) return host_path_.get();
  absl::StatusOr<std::unique_ptr<HostPath>> made =
      HostPath::Create(gpu_, arena_, state_, std::move(carrier));
  if (!made.ok()) return made.status();
  host_path_ = *std::move(made);
  host_path_now_.store(host_path_.get(), std::memory_order_release);
  return host_path_.get();
}

// The same on all ranks, whatever their NCCL: else they would go different ways.
bool Context::GoesByHost(const TensorDescription& tensor) {
  if (!has_gpu_.load(std::memory_order_acquire)) return false;
  if (device_.load(std::memory_order_acquire) == nullptr) return true;
  if (!TraitsOf(tensor.kind).combines || NcclTypeOf(tensor.data_type).has_value()) return false;
  if (!has_told_of_types_.exchange(true)) {
    on_warning_(absl::StrCat("tensor '", tensor.name, "', and others of such types, go through ",
                             "host memory, which is slow: NCCL does not reduce ",
                             Name(tensor.data_type)));
  }
  return true;
}

absl::StatusOr<DeviceMemory*> Context::HeapOfHostPath() {
  const MutexLock lock(host_path_mutex_);
  if (heap_ != nullptr) return heap_.get();
  absl::StatusOr<DeviceSlab> slab = DeviceSlab::Create(gpu_, slab_bytes_, kSlabSetting);
  if (!slab.ok()) return slab.status();
  absl::StatusOr<std::unique_ptr<DeviceMemory>> heap =
      DeviceMemory::Use(gpu_, slab->address(), slab->bytes());
  if (!heap.ok()) return heap.status();
  heap_slab_ = std::make_unique<DeviceSlab>(*std::move(slab));
  heap_ = *std::move(heap);
  return heap_.get();
}

}  // namespace ringd::client
