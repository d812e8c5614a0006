// LocalOperations' submissions that are put off until there is time, and a staging block that is in
// the caches.
#include <algorithm>

#include "client/core/lanes/node/local_operations.h"

namespace ringd::client {

void LocalOperations::PutOff(Operation& operation, const Submission& record,
                             const void* inline_source) {
  operation.record = record;
  operation.inline_source = inline_source;
  operation.put_off.store(true, std::memory_order_relaxed);
  ++operation.tensor.load(std::memory_order_relaxed)->put_off;
  put_off_.push_back(&operation);
  put_off_count_.store(static_cast<std::uint32_t>(put_off_.size()), std::memory_order_relaxed);
}

bool LocalOperations::PublishNext(std::uint64_t wanted) {
  if (!AnyPutOff()) return false;
  Operation* operation = nullptr;
  OperationEnd end;
  Submission record;
  std::uint64_t sequence = 0;
  {
    MutexLock lock(mutex_);
    if (put_off_.empty() || copying_ || !state_.alive()) return false;
    operation = put_off_.front();
    sequence = operation->sequence.load(std::memory_order_relaxed);
    const std::uint64_t before = staged_bytes_.load(std::memory_order_relaxed);
    if (sequence > wanted && before != 0 &&
        before + operation->registration->bytes > staged_window_) {
      return false;
    }
    end = operation->end;
    record = operation->record;
    copying_ = true;
    AddReducers(1);
  }
  Registration& registration = *end.registration;
  if (end.staged_from != nullptr) staging_->CopyPutOff(KeptChunks(registration), record, end);
  std::uint64_t occurrence = 0;
  bool published = false;
  {
    MutexLock lock(mutex_);
    copying_ = false;
    operation->end = end;
    if (state_.alive()) {
      put_off_.pop_front();
      put_off_count_.store(static_cast<std::uint32_t>(put_off_.size()), std::memory_order_relaxed);
      if (put_off_.empty()) staged_window_ = kStagedWindowBytes;
      --operation->tensor.load(std::memory_order_relaxed)->put_off;
      occurrence = Publish(*operation, record, operation->inline_source);
      published = true;
    }
    AddReducers(-1);
  }
  if (!published) return false;
  Announce(*operation, sequence, registration, occurrence);
  // Another thread may have wanted the next one meanwhile.
  if (waiters() > 0 && AnyPutOff()) {
    own_state_.doorbell.Ring();
  }
  return true;
}

void LocalOperations::WidenStagedWindow() {
  MutexLock lock(mutex_);
  if (!put_off_.empty()) staged_window_ = std::min(2 * staged_window_, std::uint64_t{1} << 62);
}

void LocalOperations::AddStagedBytes(std::uint64_t bytes) noexcept {
  staged_bytes_.store(staged_bytes_.load(std::memory_order_relaxed) + bytes,
                      std::memory_order_relaxed);
}

}  // namespace ringd::client
