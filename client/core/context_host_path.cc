// A context's GPU where its tensors are reduced in the host's memory.
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/nccl/nccl_types.h"
#include "client/core/context.h"
#include "proto/operations/operation_traits.h"

namespace ringd::client {
namespace {

// ringd ends the wait for the other ranks itself; this only bounds what a stopped ringd can cost.
constexpr std::chrono::seconds kAgreeDeadline = std::chrono::hours(1) + std::chrono::seconds(15);
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
    return tensor.lane.way->Submit(tensor, address, address, WhenFull::kFail, {});
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
    return ringd_operations_.SubmitInPieces(tensor, arena_.OffsetOf(address));
  };
  carrier.tell_piece = [this](std::uint32_t progress, std::uint32_t piece) {
    ringd_operations_.TellPiece(progress, piece);
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

absl::StatusOr<bool> Context::GoesByHost(const TensorDescription& tensor,
                                         std::uint32_t communicator) {
  if (!has_gpu_.load(std::memory_order_acquire)) return false;
  if (device_.load(std::memory_order_acquire) == nullptr) return true;
  // The same on all ranks, whatever their NCCL: else they would go different ways.
  if (!TraitsOf(tensor.kind).combines || NcclTypeOf(tensor.data_type).has_value()) {
    return AgreeOnHostPath(tensor.communicator, communicator);
  }
  if (!has_told_of_types_.exchange(true)) {
    on_warning_(absl::StrCat("tensor '", tensor.name, "', and others of such types, go through ",
                             "host memory, which is slow: NCCL does not reduce ",
                             Name(tensor.data_type)));
  }
  return true;
}

absl::StatusOr<bool> Context::AgreeOnHostPath(ringd_communicator communicator,
                                              std::uint32_t at_ringd) {
  {
    const MutexLock lock(host_path_mutex_);
    const auto found = agreed_.find(communicator);
    if (found != agreed_.end()) return found->second;
  }
  if (!state_.alive()) return state_.status();
  const Presence presence(calls_);
  const absl::StatusOr<AgreedDevices> agreed =
      control_->AgreeOnDevices(at_ringd, Clock::now() + kAgreeDeadline, is_interrupted_);
  // An older ringd lets each rank go its own way.
  const bool knows = !absl::IsUnimplemented(agreed.status());
  if (knows && !agreed.ok()) return state_.alive() ? Explain(agreed.status()) : state_.status();
  const bool by_host = knows && agreed->goes_by_host;
  std::string warning;
  if (by_host) {
    warning = absl::StrCat("GPU tensors of rank ", places_.rank,
                           " go through host memory, which is slow, as those of ", agreed->why);
  } else if (knows && !agreed->why.empty()) {
    warning = absl::StrCat("GPU tensors of rank ", places_.rank, " are left to NCCL without word ",
                           "of ranks that have opened no GPU in time: ", agreed->why);
  }
  bool is_new = false;
  bool result = by_host;
  {
    const MutexLock lock(host_path_mutex_);
    // Of two threads that ask at once, one decides.
    result = agreed_.emplace(communicator, by_host).first->second;
    is_new = !warning.empty() && told_.insert(warning).second;
  }
  if (is_new) on_warning_(warning);
  return result;
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
