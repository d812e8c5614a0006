// What Context::WaitAll sorts its operations into.
#ifndef RINGD_CLIENT_CORE_WAITING_WAIT_LISTS_H_
#define RINGD_CLIENT_CORE_WAITING_WAIT_LISTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/core/waiting/operation_queue.h"
#include "client/ringd.h"

namespace ringd::client {

struct WaitLists {
  std::vector<ringd_operation*> open;    // what is not done, and ...
  std::vector<std::uint64_t> sequences;  // ... its numbers; of 0 one that no operation has
  std::vector<ringd_operation*> failed;
  std::vector<OperationEnd> ends;
};

// Keeps one from call to call: at the end of a step the allocator's code and data are cold.
//
// Thread safety: any thread.
class KeptWaitLists {
 public:
  KeptWaitLists() = default;
  ~KeptWaitLists() { delete kept_.load(std::memory_order_acquire); }
  KeptWaitLists(const KeptWaitLists&) = delete;
  KeptWaitLists& operator=(const KeptWaitLists&) = delete;

  // The kept ones, empty, while it lives; new ones for whoever comes meanwhile.
  class Loan {
   public:
    explicit Loan(KeptWaitLists& owner)
        : owner_(owner), lists_(owner.kept_.exchange(nullptr, std::memory_order_acquire)) {
      if (lists_ == nullptr) lists_ = std::make_unique<WaitLists>();
    }
    ~Loan() {
      lists_->open.clear();
      lists_->sequences.clear();
      lists_->failed.clear();
      lists_->ends.clear();
      delete owner_.kept_.exchange(lists_.release(), std::memory_order_acq_rel);
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    WaitLists& operator*() const noexcept { return *lists_; }

   private:
    KeptWaitLists& owner_;
    std::unique_ptr<WaitLists> lists_;
  };

 private:
  std::atomic<WaitLists*> kept_{nullptr};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_WAIT_LISTS_H_
