#include "client/core/lanes/device/device_staging.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "backends/cuda/device_copy.h"
#include "backends/cuda/timeline.h"

namespace ringd::client {
namespace {

constexpr std::chrono::seconds kCopyDeadline{30};
constexpr std::chrono::seconds kIdlePatience{1};
constexpr std::chrono::microseconds kPause{50};

// Tensors of about the same size share blocks.
constexpr std::uint64_t BlockBytes(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kStep = 512;
  return (bytes + kStep - 1) / kStep * kStep;
}

absl::Status In(const char* what, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("its ", what, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStaging>> DeviceStaging::Create(StagingMemory& memory) {
  absl::StatusOr<CudaStream> stream = CudaStream::Create(memory.gpu());
  if (!stream.ok()) return stream.status();
  return std::unique_ptr<DeviceStaging>(new DeviceStaging(memory, *std::move(stream)));
}

absl::StatusOr<std::optional<std::uint64_t>> DeviceStaging::Locate(const Registration& registration,
                                                                   const char* what,
                                                                   const void* address) const {
  if (address == nullptr) return absl::InvalidArgumentError(absl::StrCat("its ", what, " is NULL"));
  const DeviceAddress begin = DeviceAddressOf(address);
  if (begin % registration.element_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("its ", what, " is not aligned to elements"));
  }
  const absl::StatusOr<std::optional<std::uint64_t>> found =
      memory_.Find(address, registration.bytes);
  if (!found.ok()) return In(what, found.status());
  if (found->has_value()) return found;
  const absl::Status status = CheckOnDevice(*memory_.gpu(), begin, registration.bytes);
  if (!status.ok()) return In(what, status);
  return std::optional<std::uint64_t>();
}

absl::Status DeviceStaging::CheckOverlap(const void* source, const void* destination,
                                         std::uint64_t bytes) {
  const DeviceAddress read = DeviceAddressOf(source);
  const DeviceAddress written = DeviceAddressOf(destination);
  if (read == written || read >= written + bytes || written >= read + bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("source and destination overlap in part");
}

absl::StatusOr<DeviceStaging::Places> DeviceStaging::Place(const Registration& registration,
                                                           const void* source, void* destination,
                                                           void* stream, const Copy& copy) {
  // Nothing lies nowhere, and ringd wants an offset.
  if (registration.bytes == 0) return Places{kTimelineBytes, kTimelineBytes, nullptr};
  if (registration.receives) {
    return PlaceBoth(registration, registration.sends ? source : destination, destination, stream,
                     copy);
  }
  // The root of a broadcast has its result already; it may leave its destination out.
  const bool copies = destination != nullptr && destination != source;
  if (copies) {
    absl::Status status = CheckOverlap(source, destination, registration.bytes);
    if (status.ok()) status = Locate(registration, "destination", destination).status();
    if (!status.ok()) return status;
  }
  const absl::StatusOr<Places> places =
      PlaceBoth(registration, source, const_cast<void*>(source), stream, copy);
  if (!places.ok() || !copies) return places;
  const absl::Status status = EnqueueCopy(*memory_.gpu(), DeviceAddressOf(destination),
                                          DeviceAddressOf(source), registration.bytes, stream);
  if (status.ok()) return places;
  if (places->block != nullptr) GiveBack(*places->block);
  return status;
}

absl::StatusOr<DeviceStaging::Places> DeviceStaging::PlaceBoth(const Registration& registration,
                                                               const void* source,
                                                               void* destination, void* stream,
                                                               const Copy& copy) {
  const std::uint64_t bytes = registration.bytes;
  if (absl::Status status = CheckOverlap(source, destination, bytes); !status.ok()) return status;
  const auto from = Locate(registration, registration.sends ? "source" : "destination", source);
  if (!from.ok()) return from.status();
  const auto to = destination == source ? from : Locate(registration, "destination", destination);
  if (!to.ok()) return to.status();
  if (from->has_value() && to->has_value()) return Places{**from, **to, nullptr};

  absl::StatusOr<DeviceBlock*> block = Take(bytes);
  if (!block.ok()) return block.status();
  const auto put = [&]() -> absl::Status {
    DeviceBlock& taken = **block;
    {
      const MutexLock lock(taken.mutex);
      taken.destination =
          to->has_value() || !registration.receives ? 0 : DeviceAddressOf(destination);
      taken.result_bytes = bytes;
    }
    absl::Status status = taken.last_use.HoldUp(stream);
    if (status.ok() && !from->has_value() && registration.sends) {
      status = copy != nullptr
                   ? copy(taken.offset, DeviceAddressOf(source))
                   : memory_.CopyIn(taken.offset, DeviceAddressOf(source), bytes, stream);
    }
    return status.ok() ? taken.last_use.Record(stream) : status;
  };
  if (absl::Status status = put(); !status.ok()) {
    GiveBack(**block);
    return status;
  }
  return Places{from->value_or((*block)->offset), to->value_or((*block)->offset), *block};
}

void DeviceStaging::Begin(DeviceBlock& block, std::uint64_t sequence) {
  const MutexLock lock(block.mutex);
  block.sequence = sequence;
}

absl::Status DeviceStaging::Fetch(DeviceBlock& block, std::uint64_t sequence, void* stream,
                                  std::optional<std::uint32_t> pair, const Copy& copy) {
  const MutexLock lock(block.mutex);
  if (block.sequence != sequence) {
    return absl::NotFoundError("the operation has been waited for by another thread");
  }
  absl::Status status = block.last_use.HoldUp(stream);
  if (!status.ok() || block.is_fetched) return status;
  if (copy != nullptr && block.destination != 0) return CopyOut(block, stream, copy);
  if (pair.has_value()) status = memory_.WaitForResult(stream, *pair, sequence);
  if (!status.ok()) return status;
  // The value that is waited for has to be there, too.
  return block.destination == 0 ? block.last_use.Record(stream) : CopyOut(block, stream);
}

absl::Status DeviceStaging::CopyOut(DeviceBlock& block, void* stream, const Copy& copy) {
  absl::Status status = copy != nullptr ? copy(block.offset, block.destination)
                                        : memory_.CopyOut(block.destination, block.offset,
                                                          block.result_bytes, stream);
  if (status.ok()) status = block.last_use.Record(stream);
  block.is_fetched = status.ok();
  return status;
}

absl::Status DeviceStaging::Finish(std::span<const OperationEnd> ends) {
  bool copies = false;
  for (const OperationEnd& end : ends) {
    if (!IsHere(end)) continue;
    DeviceBlock& block = *end.device_block;
    const MutexLock lock(block.mutex);
    // No stream fetches it from now on.
    block.sequence.reset();
    if (block.is_fetched || block.destination == 0) continue;
    absl::Status status = block.last_use.HoldUp(stream_.handle());
    if (status.ok()) status = CopyOut(block, stream_.handle());
    if (!status.ok()) return status;
    copies = true;
  }
  if (copies) {
    const absl::Status status = stream_.WaitIdle(Clock::now() + kCopyDeadline);
    if (!status.ok()) return status;
  }
  for (const OperationEnd& end : ends) {
    if (IsHere(end)) GiveBack(*end.device_block);
  }
  return absl::OkStatus();
}

void DeviceStaging::GiveBack(DeviceBlock& block) {
  {
    const MutexLock lock(block.mutex);
    block.sequence.reset();
    block.destination = 0;
    block.is_fetched = false;
  }
  const MutexLock lock(mutex_);
  idle_[block.bytes].push_back(&block);
}

DeviceBlock* DeviceStaging::TakeIdle(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto found = idle_.find(bytes);
  if (found == idle_.end() || found->second.empty()) return nullptr;
  // The one that has not been used for longest: the stream waits least for it.
  DeviceBlock* const block = found->second.front();
  found->second.pop_front();
  return block;
}

absl::StatusOr<DeviceBlock*> DeviceStaging::Take(std::uint64_t bytes) {
  const std::uint64_t block_bytes = BlockBytes(bytes);
  if (DeviceBlock* const idle = TakeIdle(block_bytes); idle != nullptr) return idle;
  const absl::StatusOr<std::uint64_t> offset = Allocate(block_bytes, Clock::now() + kIdlePatience);
  if (!offset.ok()) return offset.status();
  absl::StatusOr<DeviceBlock*> block = TakeSpare();
  if (!block.ok()) {
    memory_.FreeAt(*offset);
    return block.status();
  }
  (*block)->offset = *offset;
  (*block)->bytes = block_bytes;
  return block;
}

absl::StatusOr<DeviceBlock*> DeviceStaging::TakeSpare() {
  {
    const MutexLock lock(mutex_);
    if (!spare_.empty()) {
      DeviceBlock* const spare = spare_.back();
      spare_.pop_back();
      return spare;
    }
  }
  absl::StatusOr<CudaEvent> event = CudaEvent::Create(memory_.gpu());
  if (!event.ok()) return event.status();
  const MutexLock lock(mutex_);
  return &blocks_.emplace_back(*this, *std::move(event));
}

absl::StatusOr<std::uint64_t> DeviceStaging::Allocate(std::uint64_t bytes,
                                                      Clock::time_point deadline) {
  for (;; std::this_thread::sleep_for(kPause)) {
    absl::StatusOr<std::uint64_t> offset = memory_.AllocateAt(bytes);
    if (!absl::IsResourceExhausted(offset.status())) return offset;
    const bool others = FreeReached();
    offset = memory_.AllocateAt(bytes);
    if (offset.ok() || !others || Clock::now() >= deadline) return offset;
  }
}

bool DeviceStaging::FreeReached() {
  bool others = false;
  const MutexLock lock(mutex_);
  for (auto& [bytes, blocks] : idle_) {
    std::deque<DeviceBlock*> kept;
    for (DeviceBlock* const block : blocks) {
      const absl::StatusOr<bool> is_reached = block->last_use.IsReached();
      if (!is_reached.ok() || !*is_reached) {
        kept.push_back(block);
        others |= is_reached.ok();
        continue;
      }
      memory_.FreeAt(block->offset);
      spare_.push_back(block);
    }
    blocks = std::move(kept);
  }
  return others;
}

bool DeviceStaging::WaitUntilQuiet(Clock::time_point deadline) {
  for (;; std::this_thread::sleep_for(kPause)) {
    bool is_quiet = true;
    {
      const MutexLock lock(mutex_);
      for (const DeviceBlock& block : blocks_) {
        const absl::StatusOr<bool> is_reached = block.last_use.IsReached();
        // After an error of the GPU nothing runs any more.
        is_quiet &= !is_reached.ok() || *is_reached;
      }
    }
    if (is_quiet || Clock::now() >= deadline) return is_quiet;
  }
}

}  // namespace ringd::client
