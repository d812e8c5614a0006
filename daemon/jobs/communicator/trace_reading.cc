#include "daemon/jobs/communicator/trace_reading.h"

#include <algorithm>

#include "proto/base/clock.h"

namespace ringd {
namespace {

// A trace begins with so many events of each ring: what is under way began there.
constexpr std::uint64_t kBacklog = 2048;
// Tensors named in one answer. Names have 512 bytes at most.
constexpr std::size_t kMostNames = 1024;
// Communicators named in one answer.
constexpr std::size_t kMostCommunicators = 256;
// What a name costs, in events.
constexpr std::size_t kCostOfName = 4;

}  // namespace

std::size_t TraceReading::Step(const JobCommunicator& job, const FindTraced& find,
                               std::size_t budget) {
  std::size_t cost = 0;
  do {
    if (ring_ < job.trace_ring_count()) {
      cost += ReadPiece(job, find, budget - cost);
    } else if (!named_.empty()) {
      cost += AddName(find);
    } else if (!parts_.empty()) {
      cost += AddCommunicator(find);
    }
    done_ = ring_ >= job.trace_ring_count() && named_.empty() && parts_.empty();
  } while (!done_ && cost < budget);
  return std::max<std::size_t>(1, cost);
}

void TraceReading::BeginRing(const TraceReader& reader, const TraceRingView& view,
                             std::size_t ring_count) {
  ring_begun_ = true;
  const std::uint64_t written = reader.written();
  skips_ahead_ = position_.rings().empty();
  if (skips_ahead_) {
    next_ = written - std::min(written, kBacklog);
  } else {
    const int ring = static_cast<int>(ring_);
    next_ = ring < position_.rings_size() ? position_.rings(ring) : 0;
  }
  // What one ring leaves of its share the others may have.
  share_ = most_ / (ring_count - ring_);
  const std::uint64_t expected = std::min(
      {written - std::min(written, next_), std::uint64_t{view.capacity}, std::uint64_t{share_}});
  trace_.mutable_rings(static_cast<int>(ring_))
      ->mutable_events()
      ->reserve(expected * sizeof(TraceEvent));
}

std::size_t TraceReading::ReadPiece(const JobCommunicator& job, const FindTraced& find,
                                    std::size_t most) {
  const TraceRingView view = job.trace_ring(ring_);
  if (!ring_begun_) trace_.add_rings();
  if (view.header == nullptr) {
    EndRing();
    return 1;
  }
  const TraceReader reader(view);
  if (!ring_begun_) BeginRing(reader, view, job.trace_ring_count());
  v1::TraceRing& ring = *trace_.mutable_rings(static_cast<int>(ring_));
  piece_.clear();
  const TraceRead read = reader.Read(next_, std::min(share_, most), piece_);
  next_ = read.next;
  share_ -= read.copied;
  most_ -= read.copied;
  if (!std::exchange(skips_ahead_, false)) ring.set_lost(ring.lost() + read.lost);
  ring.set_next(read.next);
  ring.set_more(read.more);
  Keep(find);
  if (!read.more || share_ == 0) EndRing();
  return std::max<std::size_t>(1, read.copied);
}

void TraceReading::Keep(const FindTraced& find) {
  if (ring_ > 0) {
    const std::uint64_t now_ns = MonotonicNanos();
    const auto member = static_cast<int>(ring_ - 1);
    // Most events are of the same one as those before.
    TracedPart part;
    const JobCommunicator* of = find(part);
    std::erase_if(piece_, [&](const TraceEvent& event) {
      if (const TracedPart next = TracedPart::OfWord(event.channel); next != part) {
        part = next;
        of = find(part);
      }
      if (of == nullptr || (!part.is_all_ranks() && !of->HasTracedMember(member))) return true;
      return !of->IsCredible(event, now_ns);
    });
    for (TraceEvent& event : piece_) event.member = static_cast<std::uint8_t>(member);
  }
  for (const TraceEvent& event : piece_) {
    const TracedPart part = TracedPart::OfWord(event.channel);
    if (!part.is_all_ranks() && parts_.size() < kMostCommunicators) parts_.insert(part);
    // Who reads it knows how an operation that is matched by order is called.
    if (event.tensor == kNoTracedTensor || IsTracedOrdered(event.tensor)) continue;
    if (named_.size() < kMostNames) named_.emplace(part, event.tensor);
  }
  trace_.mutable_rings(static_cast<int>(ring_))
      ->mutable_events()
      ->append(reinterpret_cast<const char*>(piece_.data()), piece_.size() * sizeof(TraceEvent));
}

std::size_t TraceReading::AddName(const FindTraced& find) {
  const auto [part, tensor] = named_.extract(named_.begin()).value();
  const JobCommunicator* const of = find(part);
  if (of == nullptr) return kCostOfName;
  v1::TracedTensor& entry = *trace_.add_tensors();
  entry.set_part(part.number());
  entry.set_number(tensor);
  entry.set_name(of->NameOfTraced(tensor));
  return kCostOfName;
}

std::size_t TraceReading::AddCommunicator(const FindTraced& find) {
  const TracedPart part = parts_.extract(parts_.begin()).value();
  const JobCommunicator* const of = find(part);
  if (of == nullptr) return kCostOfName;
  v1::TracedCommunicator& entry = *trace_.add_communicators();
  entry.set_part(part.number());
  entry.set_name(of->name());
  for (const int member : of->traced_members()) {
    entry.add_members(static_cast<std::uint32_t>(member));
  }
  return kCostOfName;
}

}  // namespace ringd
