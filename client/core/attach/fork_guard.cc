#include "client/core/attach/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <array>

namespace ringd::client {
namespace {

// Contexts beyond this many at once are guarded too, but their children keep the lifeline.
constexpr std::size_t kEntries = 64;
constexpr int kNoFd = -1;

// Plain atomics, because a fork handler may only do what a signal handler may.
struct ForkRecord {
  ForkRecord() {
    for (auto& fd : lifelines) fd.store(kNoFd, std::memory_order_relaxed);
  }
  std::atomic<std::uint32_t> generation{0};
  std::atomic<std::uint32_t> guards{0};  // how many contexts there are
  std::atomic<bool> forked_with_context{false};
  std::array<std::atomic<int>, kEntries> lifelines;
};

ForkRecord& Record() {
  static ForkRecord record;
  return record;
}

void InForkedChild() {
  if (Record().guards.load(std::memory_order_relaxed) == 0) return;
  Record().forked_with_context.store(true, std::memory_order_relaxed);
  Record().generation.fetch_add(1, std::memory_order_relaxed);
  for (auto& fd : Record().lifelines) {
    const int lifeline = fd.exchange(kNoFd, std::memory_order_relaxed);
    if (lifeline != kNoFd) ::close(lifeline);
  }
}

std::uint32_t CurrentGeneration() {
  // The record comes first: the handler needs it.
  static const bool installed = (Record(), ::pthread_atfork(nullptr, nullptr, InForkedChild) == 0);
  static_cast<void>(installed);
  return Record().generation.load(std::memory_order_relaxed);
}

}  // namespace

ForkGuard::ForkGuard(int lifeline) : generation_(CurrentGeneration()), entry_(0) {
  Record().guards.fetch_add(1);
  for (; entry_ < kEntries; ++entry_) {
    int expected = kNoFd;
    if (Record().lifelines[entry_].compare_exchange_strong(expected, lifeline)) return;
  }
}

ForkGuard::~ForkGuard() {
  ForgetLifeline();
  if (!InChild()) Record().guards.fetch_sub(1);
}

void ForkGuard::ForgetLifeline() noexcept {
  if (entry_ < kEntries && !InChild()) Record().lifelines[entry_].store(kNoFd);
  entry_ = kEntries;
}

bool ForkGuard::InChild() const noexcept {
  return Record().generation.load(std::memory_order_relaxed) != generation_;
}

bool ForkGuard::ForkedWithContext() noexcept {
  return Record().forked_with_context.load(std::memory_order_relaxed);
}

}  // namespace ringd::client
