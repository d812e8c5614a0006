#include "daemon/execution/result_copies.h"

#include <algorithm>

namespace ringd {
namespace {

// In claimed_, in place of a count: more than was ever added.
constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;
// In finished_, beside the count: the engine wants to hear of it.
constexpr std::uint64_t kAwaited = std::uint64_t{1} << 63;
// With fewer parts than this before it the engine is not behind, and wakes nobody: it does them
// itself, sooner than a sleeping thread could.
constexpr std::uint64_t kTellFrom = 2;

constexpr std::size_t PartsFor(std::size_t members) {
  return (members + ResultCopies::kMembersPerPart - 1) / ResultCopies::kMembersPerPart;
}

}  // namespace

ResultCopies::ResultCopies(const BucketMemory& memory, StagedTensors* staged,
                           const std::byte* buffer, std::size_t max_ranges, Reducers& reducers)
    : memory_(memory),
      staged_(staged),
      buffer_(buffer),
      reducers_(reducers),
      parts_per_range_(PartsFor(memory.member_count())),
      members_per_part_((memory.member_count() + parts_per_range_ - 1) / parts_per_range_),
      max_ranges_(max_ranges),
      ranges_(std::make_unique<Range[]>(max_ranges)) {}

bool ResultCopies::HasRoom() const noexcept {
  return !closed_ && added_.load(std::memory_order_relaxed) / parts_per_range_ < max_ranges_;
}

void ResultCopies::Add(std::size_t begin, std::size_t end, ResultPlace place) noexcept {
  const std::uint64_t before = added_.load(std::memory_order_relaxed);
  ranges_[before / parts_per_range_] = {begin, end, place};
  const std::uint64_t after = before + parts_per_range_;
  // Releases the range and the result to who claims. In one order with the reducers' going to
  // sleep: either they see this, or Tell() sees them.
  added_.store(after, std::memory_order_seq_cst);
  if (after - claimed_.load(std::memory_order_relaxed) >= kTellFrom) reducers_.Tell();
}

std::optional<std::size_t> ResultCopies::Claim() noexcept {
  std::uint64_t part = claimed_.load(std::memory_order_relaxed);
  do {
    // Pairs with Add().
    if (part >= added_.load(std::memory_order_seq_cst)) return std::nullopt;
    // Relaxed: what is claimed was released by added_.
  } while (!claimed_.compare_exchange_weak(part, part + 1, std::memory_order_relaxed));
  return part;
}

void ResultCopies::Copy(std::size_t part) const noexcept {
  const Range& range = ranges_[part / parts_per_range_];
  const std::size_t first = part % parts_per_range_ * members_per_part_;
  const std::size_t last = std::min(first + members_per_part_, memory_.member_count());
  memory_.CopyToMembers(buffer_, range.begin, range.end, range.place, first, last);
  if (staged_ != nullptr) staged_->NoteResults(range.begin, range.end, first, last);
}

void ResultCopies::Finish(std::size_t part) noexcept {
  Copy(part);
  // Where the engine sees this, it may free `memory_` and `buffer_`. Release pairs with Done and
  // Quiet.
  const std::uint64_t before = finished_.fetch_add(1, std::memory_order_release);
  if ((before & kAwaited) != 0) reducers_.WakeEngine();
}

bool ResultCopies::CopyOne() noexcept {
  const std::optional<std::size_t> part = Claim();
  if (!part.has_value()) return false;
  Copy(*part);
  finished_.fetch_add(1, std::memory_order_relaxed);  // the engine's own
  return true;
}

bool ResultCopies::Done() noexcept {
  const std::uint64_t added = added_.load(std::memory_order_relaxed);
  // Acquire, here and below, pairs with Finish: the results are in their places.
  if ((finished_.load(std::memory_order_acquire) & ~kAwaited) == added) return true;
  if (claimed_.load(std::memory_order_relaxed) < added) return false;
  // Who finishes later sees that it is awaited; who has finished before is counted here.
  const std::uint64_t finished = finished_.fetch_or(kAwaited, std::memory_order_acquire);
  return (finished & ~kAwaited) == added;
}

void ResultCopies::Close() noexcept {
  if (closed_) return;
  closed_ = true;
  claimed_before_close_ = claimed_.exchange(kClosed, std::memory_order_relaxed);
  finished_.fetch_or(kAwaited, std::memory_order_relaxed);
}

bool ResultCopies::Quiet() const noexcept {
  const std::uint64_t all =
      closed_ ? claimed_before_close_ : added_.load(std::memory_order_relaxed);
  return (finished_.load(std::memory_order_acquire) & ~kAwaited) == all;
}

bool ResultCopies::MayGrow() const noexcept {
  return claimed_.load(std::memory_order_relaxed) < kClosed;
}

}  // namespace ringd
