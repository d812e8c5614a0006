// Operations, for ringd.hpp: what a submission returns, and how it is waited for.
#ifndef RINGD_CLIENT_RINGD_OPERATION_HPP_
#define RINGD_CLIENT_RINGD_OPERATION_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "client/ringd.h"
#include "client/ringd_tensor.hpp"

namespace ringd {

// A tensor that ringd knows. A number: cheap to copy, valid as long as its Context.
struct Registration {
  ringd_registration number = 0;
};

// An operation in flight.
//
// Thread safety: one thread at a time; different operations are independent.
// Ownership: does not own the tensor's memory, nor the Context, both of which must outlive it.
//   Waits in its destructor if nobody has waited, because ringd may be using the memory: the job's
//   failure or ringd's death end that wait too.
class Operation {
 public:
  Operation() noexcept = default;
  Operation(ringd_context* context, ringd_operation number) noexcept
      : context_(context), number_(number) {}
  Operation(Operation&& other) noexcept
      : context_(other.context_), number_(std::exchange(other.number_, 0)) {}
  Operation& operator=(Operation&& other) noexcept {
    if (this != &other) {
      Abandon();
      context_ = other.context_;
      number_ = std::exchange(other.number_, 0);
    }
    return *this;
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() { Abandon(); }

  // True until it has been waited for.
  bool pending() const noexcept { return number_ != 0; }

  // Whether Wait would return at once. Does not block.
  bool Done() const {
    if (number_ == 0) return true;
    std::int32_t done = 0;
    ThrowIfFailed(ringd_test(context_, number_, &done));
    return done != 0;
  }

  // Blocks until the operation has ended; throws if it failed. Afterwards it is no longer pending.
  void Wait() {
    if (number_ != 0) ThrowIfFailed(ringd_wait(context_, std::exchange(number_, 0), -1));
  }

  // Of an operation of SubmitOnStream: what is put on `stream` from now on runs when it has its
  // result. Blocks only where ringd_stream_wait does, and the operation is still to be waited
  // for.
  void OrderOn(void* stream) const {
    if (number_ != 0) ThrowIfFailed(ringd_stream_wait(context_, number_, stream));
  }

  // As Wait, for `timeout` at most. False: still in flight.
  bool WaitFor(std::chrono::milliseconds timeout) {
    if (number_ == 0) return true;
    const std::int64_t limit = timeout.count() < 0 ? 0 : timeout.count();
    const ringd_status status = ringd_wait(context_, number_, limit);
    if (status == RINGD_DEADLINE_EXCEEDED) return false;
    number_ = 0;
    ThrowIfFailed(status);
    return true;
  }

 private:
  void Abandon() noexcept {
    if (number_ != 0) ringd_wait(context_, std::exchange(number_, 0), -1);
  }

  friend void WaitAll(std::span<Operation> operations);

  ringd_context* context_ = nullptr;
  ringd_operation number_ = 0;
};

// Waits for all of them, which are of one Context, in one call. Blocks until all have ended; throws
// if any has failed, what the first that has failed says. Afterwards none is pending.
inline void WaitAll(std::span<Operation> operations) {
  ringd_context* context = nullptr;
  std::vector<ringd_operation> numbers;
  for (Operation& operation : operations) {
    if (!operation.pending()) continue;
    context = operation.context_;
    numbers.push_back(std::exchange(operation.number_, 0));
  }
  if (!numbers.empty()) {
    ThrowIfFailed(ringd_wait_all(context, numbers.data(), numbers.size(), -1));
  }
}

}  // namespace ringd

#endif  // RINGD_CLIENT_RINGD_OPERATION_HPP_
