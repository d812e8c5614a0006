#include "client/core/lanes/device/host_path.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/waiting/presence.h"
#include "client/core/waiting/quiet_thread.h"
#include "proto/shm/staging_progress.h"

namespace ringd::client {
namespace {

// Every sleep is bounded, so that a lost wake-up delays and never hangs.
constexpr std::chrono::milliseconds kLongestSleep{100};
// Of a tensor that goes in pieces: one value for so many, since each is a call of the driver's.
constexpr std::uint32_t kPiecesAtOnce = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<HostPath>> HostPath::Create(std::shared_ptr<const CudaContext> gpu,
                                                           Arena& arena, const SessionState& state,
                                                           Carrier carrier) {
  absl::StatusOr<std::unique_ptr<PinnedArena>> memory = PinnedArena::Create(gpu, arena);
  if (!memory.ok()) return memory.status();
  absl::StatusOr<std::unique_ptr<DeviceStaging>> staging = DeviceStaging::Create(**memory);
  if (!staging.ok()) return staging.status();
  std::unique_ptr<HostPath> made(new HostPath(std::move(gpu), state, std::move(carrier),
                                              *std::move(memory), *std::move(staging)));
  absl::StatusOr<std::thread> thread =
      StartQuietThread("ringd-host-path", [path = made.get()] { path->Run(); });
  if (!thread.ok()) return thread.status();
  const MutexLock lock(made->stop_mutex_);
  made->thread_ = *std::move(thread);
  return made;
}

HostPath::HostPath(std::shared_ptr<const CudaContext> gpu, const SessionState& state,
                   Carrier carrier, std::unique_ptr<PinnedArena> memory,
                   std::unique_ptr<DeviceStaging> staging)
    : gpu_(std::move(gpu)),
      state_(state),
      carrier_(std::move(carrier)),
      memory_(std::move(memory)),
      staging_(std::move(staging)) {
  ExitOrder::Add(this);
}

HostPath::~HostPath() {
  Stop();
  ExitOrder::Forget(this);
}

void HostPath::Stop() {
  // Who comes second, such as an exit handler, waits for the first.
  const MutexLock stop_lock(stop_mutex_);
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    stirred_.NotifyAll();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  EndAll();
}

void HostPath::EndAll() {
  const MutexLock lock(mutex_);
  for (auto& [sequence, operation] : operations_) {
    if (operation.has_ended) continue;
    memory_->SetDone(PairOf(sequence), sequence, PinnedArena::kAll);
    operation.has_ended = true;
    operation.is_certain = false;
  }
  changed_.NotifyAll();
}

absl::StatusOr<std::uint64_t> HostPath::Submit(Registration& tensor, const void* source,
                                               void* destination, StreamHandle stream,
                                               const InterruptCheck& is_interrupted) {
  OperationEnd end;
  end.registration = &tensor;
  Submission record{};
  SubmitResult result = TrySubmit(record, end);
  InterruptibleWait wait(is_interrupted);
  while (result == SubmitResult::kFull) {
    const absl::StatusOr<Clock::time_point> until = wait.NextEnd();
    if (!until.ok()) return until.status();
    if (!WaitForRoom(end, *until)) break;
    result = TrySubmit(record, end);
  }
  if (result != SubmitResult::kOk) {
    return state_.alive() ? absl::CancelledError("this process ends") : state_.status();
  }
  const std::uint64_t sequence = record.sequence;
  std::shared_ptr<const Orders> orders = OrdersOf(tensor);
  DeviceStaging::Copy copy;
  if (orders != nullptr) {
    copy = [&](std::uint64_t offset, DeviceAddress from) {
      return CopyPiecesIn(tensor, *orders, sequence, offset, from, stream);
    };
  }
  const absl::StatusOr<DeviceStaging::Places> places =
      staging_->Place(tensor, source, destination, stream, copy);
  if (!places.ok()) {
    Withdraw(sequence);
    return InTensor(tensor.description.name, places.status());
  }
  if (places->block != nullptr) DeviceStaging::Begin(*places->block, sequence);
  const absl::Status status = HandOver(sequence, places->block, stream, std::move(orders));
  if (status.ok()) return sequence;
  Withdraw(sequence);
  if (places->block != nullptr) staging_->GiveBack(*places->block);
  return InTensor(tensor.description.name, status);
}

std::shared_ptr<const HostPath::Orders> HostPath::OrdersOf(const Registration& tensor) const {
  if (!memory_->has_values()) return nullptr;
  Orders orders = carrier_.orders_of(tensor);
  if (orders.source.empty()) return nullptr;
  return std::make_shared<const Orders>(std::move(orders));
}

absl::Status HostPath::CopyPiecesIn(const Registration& tensor, const Orders& orders,
                                    std::uint64_t sequence, std::uint64_t offset,
                                    DeviceAddress source, StreamHandle stream) const {
  std::uint32_t copied = 0;
  for (const std::uint8_t piece : orders.source) {
    const auto [begin, bytes] = StagingPieceAt(tensor.bytes, piece);
    absl::Status status = memory_->CopyIn(offset + begin, source + begin, bytes, stream);
    ++copied;
    if (status.ok() && copied % kPiecesAtOnce == 0) {
      status = memory_->SignalReady(stream, PairOf(sequence), sequence, copied);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status HostPath::CopyPiecesOut(const Registration& tensor, const Orders& orders,
                                     std::uint64_t sequence, std::uint64_t offset,
                                     DeviceAddress destination, StreamHandle stream) const {
  const auto count = static_cast<std::uint32_t>(orders.result.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    absl::Status status;
    if (i % kPiecesAtOnce == 0) {
      const bool is_last = i + kPiecesAtOnce >= count;
      status = memory_->WaitForPieces(stream, PairOf(sequence), sequence,
                                      is_last ? PinnedArena::kAll : i + kPiecesAtOnce);
    }
    const auto [begin, bytes] = StagingPieceAt(tensor.bytes, orders.result[i]);
    if (status.ok()) status = memory_->CopyOut(destination + begin, offset + begin, bytes, stream);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

SubmitResult HostPath::TrySubmit(Submission& record, const OperationEnd& end) {
  if (!state_.alive()) return SubmitResult::kEnded;
  const MutexLock lock(mutex_);
  if (stops_) return SubmitResult::kEnded;
  if (IsFull()) return SubmitResult::kFull;
  record.sequence = next_sequence_++;
  operations_[record.sequence].end = end;
  return SubmitResult::kOk;
}

void HostPath::Withdraw(std::uint64_t sequence) {
  const MutexLock lock(mutex_);
  operations_.erase(sequence);
  changed_.NotifyAll();
}

absl::Status HostPath::HandOver(std::uint64_t sequence, DeviceBlock* block, StreamHandle stream,
                                std::shared_ptr<const Orders> orders) {
  absl::Status status;
  if (memory_->has_values()) {
    status = memory_->SignalReady(stream, PairOf(sequence), sequence, PinnedArena::kAll);
  }
  if (status.ok() && block != nullptr) {
    // The value is written to memory that has to be there.
    const MutexLock lock(block->mutex);
    status = block->last_use.Record(stream);
  }
  if (!status.ok()) return status;
  const MutexLock lock(mutex_);
  Operation& operation = operations_.at(sequence);
  operation.end.device_block = block;
  operation.orders = std::move(orders);
  // Who has stopped the thread meanwhile has ended the operation.
  Item item;
  item.sequence = sequence;
  item.end = operation.end;
  item.orders = operation.orders;
  new_.push_back(std::move(item));
  stirred_.NotifyOne();
  return absl::OkStatus();
}

absl::Status HostPath::StreamWait(std::uint64_t sequence, StreamHandle stream,
                                  const InterruptCheck& is_interrupted) {
  std::optional<std::uint32_t> pair;
  if (memory_->has_values()) {
    pair = PairOf(sequence);
  } else if (absl::Status status = AwaitEnd(sequence, is_interrupted); !status.ok()) {
    return status;
  }
  OperationEnd end;
  std::shared_ptr<const Orders> orders;
  {
    const MutexLock lock(mutex_);
    const auto found = operations_.find(sequence);
    if (found == operations_.end()) {
      return absl::NotFoundError("the operation has been waited for by another thread");
    }
    end = found->second.end;
    if (!found->second.has_ended) orders = found->second.orders;
  }
  // Without a block there is nothing to wait for: the tensor is empty. One that has ended has its
  // value already.
  if (end.device_block == nullptr) return absl::OkStatus();
  DeviceStaging::Copy copy;
  if (orders != nullptr) {
    copy = [&](std::uint64_t offset, DeviceAddress to) {
      return CopyPiecesOut(*end.registration, *orders, sequence, offset, to, stream);
    };
  }
  return staging_->Fetch(*end.device_block, sequence, stream, pair, copy);
}

absl::Status HostPath::AwaitEnd(std::uint64_t sequence, const InterruptCheck& is_interrupted) {
  InterruptibleWait wait(is_interrupted);
  for (;;) {
    const absl::StatusOr<Clock::time_point> until = wait.NextEnd();
    if (!until.ok()) return until.status();
    if (Wait(sequence, *until) != WaitResult::kTimeout) return absl::OkStatus();
  }
}

bool HostPath::IsFull() const {
  if (next_sequence_ < PinnedArena::kPairs) return false;
  const auto before = operations_.find(next_sequence_ - PinnedArena::kPairs);
  return before != operations_.end() && !before->second.has_ended;
}

bool HostPath::WaitForRoom(const OperationEnd& /*end*/, Clock::time_point deadline) {
  const Presence presence(waiters_);
  const MutexLock lock(mutex_);
  while (!stops_ && state_.alive()) {
    const Clock::time_point now = Clock::now();
    if (!IsFull() || now >= deadline) return true;
    changed_.WaitUntil(mutex_, std::min(deadline, now + kLongestSleep));
  }
  return false;
}

WaitResult HostPath::Look(std::uint64_t sequence) const {
  const auto found = operations_.find(sequence);
  if (found == operations_.end()) return WaitResult::kUnknown;
  if (!found->second.has_ended) return WaitResult::kTimeout;
  return found->second.is_certain ? WaitResult::kDone : WaitResult::kEnded;
}

WaitResult HostPath::Wait(std::uint64_t sequence, Clock::time_point deadline) {
  const Presence presence(waiters_);
  const MutexLock lock(mutex_);
  for (;;) {
    const WaitResult result = Look(sequence);
    const Clock::time_point now = Clock::now();
    if (result != WaitResult::kTimeout || now >= deadline) return result;
    changed_.WaitUntil(mutex_, std::min(deadline, now + kLongestSleep));
  }
}

WaitResult HostPath::Test(std::uint64_t sequence) {
  const MutexLock lock(mutex_);
  return Look(sequence);
}

bool HostPath::Consume(std::uint64_t sequence, OperationOutcome& outcome, OperationEnd& end) {
  const MutexLock lock(mutex_);
  const auto found = operations_.find(sequence);
  if (found == operations_.end() || !found->second.has_ended) return false;
  const Operation& operation = found->second;
  outcome.completed = operation.is_certain;
  outcome.status = static_cast<std::int32_t>(operation.status.code());
  if (!operation.status.ok()) {
    outcome.text = std::make_shared<const std::string>(operation.status.message());
  }
  end = operation.end;
  operations_.erase(found);
  return true;
}

std::size_t HostPath::ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                                       std::vector<OperationEnd>& ends) {
  const MutexLock lock(mutex_);
  std::size_t count = 0;
  for (; count < sequences.size(); ++count) {
    const auto found = operations_.find(sequences[count]);
    if (found == operations_.end() || Look(sequences[count]) != WaitResult::kDone ||
        !found->second.status.ok()) {
      break;
    }
    ends.push_back(found->second.end);
    operations_.erase(found);
  }
  return count;
}

const Registration* HostPath::FindUsed(
    const std::unordered_set<const Registration*>& registrations) {
  const MutexLock lock(mutex_);
  for (const auto& [sequence, operation] : operations_) {
    if (registrations.contains(operation.end.registration)) return operation.end.registration;
  }
  return nullptr;
}

void HostPath::WakeAll() noexcept {
  const MutexLock lock(mutex_);
  stirred_.NotifyAll();
  changed_.NotifyAll();
}

}  // namespace ringd::client
