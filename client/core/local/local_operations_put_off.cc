// LocalOperations' submissions that are put off until there is time, and a staging block that is in the caches.
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/core/local/local_operations.h"

namespace ringd::client {

SubmitResult LocalOperations::PutOff(Registration& registration, const void* source,
                                     void* destination, std::uint64_t& sequence) {
  if (!state_.alive()) return SubmitResult::kEnded;
  {
    MutexLock lock(mutex_);
    OperationEnd end;
    end.registration = &registration;
    Operation* const operation = Enlist(registration, end, sequence);
    if (operation == nullptr) return SubmitResult::kFull;
    // What it will end with is not known yet.
    PlaceOf(sequence).store(Word(sequence, kInFlight), std::memory_order_release);
    operation->source = source;
    operation->destination = destination;
    put_off_.push_back(operation);
    put_off_count_.store(static_cast<std::uint32_t>(put_off_.size()), std::memory_order_relaxed);
  }
  if (submitted_.sleepers.load(std::memory_order_relaxed) != 0) WakeBackground();
  return SubmitResult::kOk;
}

bool LocalOperations::PlaceNext(std::uint64_t wanted) {
  if (put_off_count_.load(std::memory_order_relaxed) == 0) return false;
  Operation* operation = nullptr;
  Registration* registration = nullptr;
  const void* source = nullptr;
  void* destination = nullptr;
  std::uint64_t sequence = 0;
  {
    MutexLock lock(mutex_);
    if (put_off_.empty() || placing_ || !state_.alive()) return false;
    operation = put_off_.front();
    sequence = operation->sequence.load(std::memory_order_relaxed);
    registration = operation->registration;
    source = operation->source;
    destination = operation->destination;
    const std::uint64_t before = staged_bytes_.load(std::memory_order_relaxed);
    if (sequence > wanted && before != 0 && before + registration->bytes > staged_window_) {
      return false;
    }
    placing_ = true;
    reducers_.fetch_add(1, std::memory_order_relaxed);
  }
  Submission record{};
  OperationEnd end;
  const absl::Status status =
      staging_->Place(*registration, source, destination, record, end, DirectUseOf(*registration));
  std::uint64_t occurrence = 0;
  bool published = false;
  bool refused = false;
  {
    MutexLock lock(mutex_);
    placing_ = false;
    if (status.ok() && state_.alive()) {
      operation->end = end;
      operation->split_source.store(end.split_source, std::memory_order_relaxed);
      TakeFirstPutOff();
      occurrence = Publish(*operation, record, nullptr);
      published = true;
    } else if (!status.ok() && sequence <= wanted) {
      Refuse(status);
      refused = true;
    }
  }
  reducers_.fetch_sub(1, std::memory_order_release);
  if (published) Announce(*operation, sequence, *registration, occurrence);
  if (refused && waiters() > 0) own_state_.doorbell.Ring();
  if (!published && status.ok()) staging_->Finish(end, /*succeeded=*/false);
  return published || refused;
}

LocalOperations::Operation& LocalOperations::TakeFirstPutOff() {
  Operation& first = *put_off_.front();
  put_off_.pop_front();
  put_off_count_.store(static_cast<std::uint32_t>(put_off_.size()), std::memory_order_relaxed);
  if (put_off_.empty()) staged_window_ = kStagedWindowBytes;
  return first;
}

void LocalOperations::Refuse(const absl::Status& status) {
  Operation& operation = TakeFirstPutOff();
  Tensor& tensor = *operation.tensor.load(std::memory_order_relaxed);
  // Nothing of this tensor that came later has been shown to the others: it moves up.
  for (std::uint64_t k = operation.occurrence.load(std::memory_order_relaxed) + 1;
       k < tensor.posted; ++k) {
    Operation* const later = tensor.pending[k % kOccurrencesInFlight];
    later->occurrence.store(k - 1, std::memory_order_relaxed);
    tensor.pending[(k - 1) % kOccurrencesInFlight] = later;
  }
  --tensor.posted;
  operation.outcome.completed = true;
  operation.outcome.status = static_cast<std::int32_t>(status.code());
  operation.outcome.text = std::make_shared<const std::string>(status.message());
  in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  SetWord(operation, Word(operation.sequence.load(std::memory_order_relaxed), kDone));
}

void LocalOperations::WidenStagedWindow() {
  MutexLock lock(mutex_);
  if (!put_off_.empty() && staged_window_ < (std::uint64_t{1} << 62)) staged_window_ *= 2;
}

void LocalOperations::AddStagedBytes(std::uint64_t bytes) noexcept {
  staged_bytes_.store(staged_bytes_.load(std::memory_order_relaxed) + bytes,
                      std::memory_order_relaxed);
}

}  // namespace ringd::client
