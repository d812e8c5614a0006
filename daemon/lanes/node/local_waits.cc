#include "daemon/lanes/node/local_waits.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "proto/shm/chunk_claims.h"
#include "proto/shm/ordered_operation.h"

namespace ringd {
namespace {

// While tensors are combined all is well, mostly; looking takes cache lines from those who do it.
constexpr auto kLookInterval = std::chrono::seconds(1);
// What a word of a place is reckoned at: its cache line may have to come from its member's
// processor.
constexpr std::size_t kWordCost = kCacheLineBytes;

std::uint64_t Posted(const TensorView& tensor, std::uint32_t member) noexcept {
  std::uint64_t posted = 0;
  for (std::uint64_t i = 0; i < kOccurrencesInFlight; ++i) {
    posted = std::max(posted, tensor.Slot(member, i).occurrence.load(std::memory_order_relaxed));
  }
  return posted;
}

}  // namespace

LocalWaits::LocalWaits(const JobSegmentView& segment, UniqueFd fd,
                       std::vector<std::uint32_t> capacities)
    : segment_(segment),
      fd_(std::move(fd)),
      capacities_(std::move(capacities)),
      copy_((TensorBytes() + sizeof(Line) - 1) / sizeof(Line)),
      seen_(segment.member_count()) {}

std::uint64_t LocalWaits::Progress() const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t m = 0; m < segment_.member_count(); ++m) {
    const SharedMember& member = segment_.Member(m);
    sum += member.posted.load(std::memory_order_relaxed) +
           member.ended.load(std::memory_order_relaxed);
  }
  return sum;
}

std::uint32_t LocalWaits::PlacesOf(std::uint32_t member) const noexcept {
  return std::min({segment_.Member(member).in_flight_places.load(std::memory_order_acquire),
                   capacities_[member], kMaxLocalTensors});
}

void LocalWaits::BeginPass(Clock::time_point now) {
  in_pass_ = true;
  next_member_ = next_place_ = 0;
  pass_begun_ = pass_oldest_ = now;
  pass_waiting_since_.reset();
  waits_.clear();
}

void LocalWaits::EndPass() {
  in_pass_ = false;
  oldest_ = pass_oldest_;
  waiting_since_ = pass_waiting_since_;
}

void LocalWaits::Look(Clock::time_point now, std::uint32_t tensor_count) {
  if (!in_pass_) {
    const std::uint64_t progress = Progress();
    const bool moved = std::exchange(last_progress_, progress) != progress;
    if (moved && now - pass_begun_ < kLookInterval) return;
    BeginPass(now);
  }
  std::size_t read = 0;
  for (; next_member_ < segment_.member_count(); ++next_member_, next_place_ = 0) {
    const std::uint32_t places = PlacesOf(next_member_);
    if (seen_[next_member_].size() < places) seen_[next_member_].resize(places);
    for (; next_place_ < places; ++next_place_) {
      if (read >= kBytesPerLook) return;
      read += LookAt(next_member_, next_place_, now, tensor_count);
    }
    read += kWordCost;
  }
  EndPass();
}

std::size_t LocalWaits::LookAt(std::uint32_t member, std::uint32_t place, Clock::time_point now,
                               std::uint32_t tensor_count) {
  std::size_t read = kWordCost;
  std::uint64_t word = segment_.InFlight(member, place).load(std::memory_order_acquire);
  ++work_.words;
  if (word != 0 && InFlightTensor::FromWord(word).tensor >= tensor_count) word = 0;
  Seen& seen = seen_[member][place];
  if (seen.word != word) {
    seen = {word, now, false};
  } else if (word != 0) {
    const auto [known, added] = waits_.try_emplace(word, false);
    if (added) {
      known->second = !Examine(InFlightTensor::FromWord(word)).absent.empty();
      read += TensorBytes();
    }
    seen.waits = known->second;
  }
  if (word == 0) return read;
  pass_oldest_ = std::min(pass_oldest_, seen.since);
  if (seen.waits) {
    pass_waiting_since_ = std::min(pass_waiting_since_.value_or(seen.since), seen.since);
  }
  return read;
}

TensorView LocalWaits::Read(std::uint32_t tensor) {
  ++work_.tensors;
  auto* const to = reinterpret_cast<std::byte*>(copy_.data());
  const std::uint64_t offset = JobSegmentView::TensorOffset(tensor, segment_.member_count());
  // Of memory; what could not be read is as if nobody had submitted it.
  const ssize_t got = ::pread(fd_.get(), to, TensorBytes(), static_cast<off_t>(offset));
  const std::size_t there = got > 0 ? static_cast<std::size_t>(got) : 0;
  std::memset(to + there, 0, TensorBytes() - there);
  return TensorView(to);
}

LocalVerdict LocalWaits::Examine(const InFlightTensor& tensor) {
  return Judge(Read(tensor.tensor), tensor);
}

LocalVerdict LocalWaits::Judge(const TensorView& copy, const InFlightTensor& tensor) const {
  LocalVerdict verdict;
  for (std::uint32_t m = 0; m < segment_.member_count(); ++m) {
    SubmissionSlot& slot = copy.Slot(m, tensor.occurrence);
    const auto word = OrderedDescription::FromWord(slot.meta_id);
    verdict.meta_ids.push_back(slot.meta_id);
    verdict.element_counts.push_back(ElementCountOf(slot, word.has_value() && word->is_inline));
    if (Posted(copy, m) <= tensor.occurrence) verdict.absent.push_back(static_cast<int>(m));
  }
  verdict.arrived = verdict.absent.empty();
  if (!verdict.arrived) return verdict;
  // A member may have been stopped while it reduced a part. One with several threads says of one
  // alone what it is at: if nobody says that it is at this one, it is one of those who are at any.
  if (copy.State().finished.load(std::memory_order_relaxed) > tensor.occurrence) return verdict;
  std::vector<int> at_others;
  for (std::uint32_t m = 0; m < segment_.member_count(); ++m) {
    const std::uint32_t reducing = segment_.Member(m).reducing.load(std::memory_order_relaxed);
    if (reducing == 0) continue;
    (reducing == tensor.tensor + 1 ? verdict.absent : at_others).push_back(static_cast<int>(m));
  }
  if (verdict.absent.empty() && ChunkClaims::InWork(copy.State())) verdict.absent = at_others;
  return verdict;
}

std::vector<LocalWaits::Wait> LocalWaits::InFlight(Clock::time_point before, Clock::time_point now,
                                                   std::uint32_t tensor_count, bool& all) {
  std::vector<Wait> found;
  const auto most_places = static_cast<std::uint32_t>(
      std::max<std::size_t>(1, kBytesPerLook / kWordCost / segment_.member_count()));
  for (std::uint32_t m = 0; m < segment_.member_count(); ++m) {
    const std::uint32_t places = std::min(PlacesOf(m), most_places);
    all = all && places == PlacesOf(m);
    work_.words += places;
    for (std::uint32_t p = 0; p < places; ++p) {
      const std::uint64_t word = segment_.InFlight(m, p).load(std::memory_order_acquire);
      if (word == 0) continue;
      const InFlightTensor tensor = InFlightTensor::FromWord(word);
      const bool known = p < seen_[m].size() && seen_[m][p].word == word;
      const Clock::time_point since = known ? seen_[m][p].since : now;
      if (tensor.tensor >= tensor_count || since > before) continue;
      found.push_back({m, tensor, since, {}});
    }
  }
  std::sort(found.begin(), found.end(), [](const Wait& a, const Wait& b) {
    return std::tuple(a.since, a.tensor.tensor, a.tensor.occurrence, a.member) <
           std::tuple(b.since, b.tensor.tensor, b.tensor.occurrence, b.member);
  });
  return found;
}

std::vector<LocalWaits::Wait> LocalWaits::Waiting(Clock::time_point before, Clock::time_point now,
                                                  std::uint32_t tensor_count, bool& all) {
  all = true;
  // What no look has seen so far counts from now on.
  if (before < oldest_ && before < now) return {};
  std::vector<Wait> waiting = InFlight(before, now, tensor_count, all);
  std::size_t read = 0;
  std::unordered_map<std::uint64_t, LocalVerdict> verdicts;  // by word
  std::size_t kept = 0;
  for (Wait& wait : waiting) {
    auto verdict = verdicts.find(wait.tensor.ToWord());
    if (verdict == verdicts.end()) {
      if (read >= kBytesPerLook) {
        all = false;
        continue;
      }
      verdict = verdicts.emplace(wait.tensor.ToWord(), Examine(wait.tensor)).first;
      read += TensorBytes();
    }
    // All have submitted it and nobody is at it: whoever waits for it next will find it, at once.
    if (verdict->second.absent.empty()) continue;
    wait.verdict = verdict->second;
    if (&waiting[kept] != &wait) waiting[kept] = std::move(wait);
    ++kept;
  }
  waiting.resize(kept);
  return waiting;
}

std::optional<LocalVerdict> LocalWaits::OfOldest(std::uint32_t tensor) {
  const TensorView copy = Read(tensor);
  std::optional<std::uint64_t> oldest;
  for (std::uint32_t m = 0; m < segment_.member_count(); ++m) {
    const std::uint64_t ended = copy.Ended(m).load(std::memory_order_relaxed);
    if (Posted(copy, m) > ended) oldest = std::min(oldest.value_or(ended), ended);
  }
  if (!oldest.has_value()) return std::nullopt;
  return Judge(copy, {tensor, *oldest});
}

}  // namespace ringd
