// The memory that all ranks of a job share whose ranks are all on one node: they combine their
// tensors themselves, and ringd, which made the segment, looks on.
//
//   JobSegmentHeader
//   SharedMember      x members
//   for each member: word x kMaxLocalTensors, what it has in flight (in_flight_index.h)
//   for each tensor: SharedTensor, then for each member: ended counter,
//                    SubmissionSlot x kOccurrencesInFlight
//
// Members are the ranks in the order of their local ranks. Tensors are numbered by ringd, by name
// (Registration::tensor). An *occurrence* of a tensor is one submission of it by every member,
// counted from 0; at each member occurrences end in order.
//
// How an occurrence k comes to its end:
//   1. Each member fills its slot k % kOccurrencesInFlight and stores k + 1 into its `occurrence`.
//      It may do so once every member has ended occurrence k - kOccurrencesInFlight.
//   2. When all slots hold k + 1 the occurrence has arrived. If the slots' meta_ids differ, every
//      member finds that out by itself and ends it with an error; nothing is written.
//   3a. Up to kInlineBytes the slots hold the data. Each member computes its own result from them.
//   3b. Larger ones are cut in chunks. Whoever has time (any thread of any member that has ended
//      k - 1) claims one in `work`, reduces it from where all members' sources are into all
//      members' arenas (its own result it may write where it likes), and marks it done. Who marks
//      the last one stores k + 1 into `finished`, then 0 into `work`, and wakes the sleepers. A
//      source is in its member's arena, or in its ordinary memory, which the others read by
//      process_vm_readv (direct reading, below). Who can't read one says so in `spoiled` before it
//      marks its chunk done: then the occurrence ends with an error at every member.
//   4. The member stores k + 1 into its ended counter: it will not look at the slots again.
//
// Matching by order. Tensors are then the kOrderedPlaces places that operations go round
// (ordered_operation.h). A slot's meta_id is OrderedDescription's word, and the element count and
// the scales stand beside it (ElementCountOf, StoreScales): all that members compare in step 2, and
// enough to say how they differ.
//
// `work` (chunk_claims.h) is 0, or a tag of the occurrence, 28 bits of claims and 28 of done
// chunks. A thread that was delayed may claim for an occurrence that has finished long ago; so
// after its claim it looks at `finished`, and takes the claim back. `finished` is stored before
// `work` becomes 0, so it can't miss that.
//
// Direct reading. Each member publishes its pid, a token (random bits) and where the token lies in
// its memory, and reads the others' tokens. Where that fails the kernel does not allow it (another
// pid namespace, Yama, a seccomp filter, no such call) or the pid is somebody else's. Each
// publishes in `reach` what came of it, and a submitter names ordinary memory in its slot only if
// all could read all. Each read of a source ends with a read of the token, in one system call: the
// kernel takes them in this order and from one address space. So a token that is still right says
// that this process was that member, and that its source was still to be read; a member that gives
// an operation up before its end wipes its token first. No process ever writes into another's
// ordinary memory, so one that is late or was stopped can't harm it.
//
// Trust: the members are one user's processes with one job secret, and can already write each
// other's gradients. Each still checks offsets against the arenas before use, and hands other
// members' addresses only to process_vm_readv, which reads what the kernel lets one of the user's
// processes read of another (as ptrace does). ringd only reads, and believes nothing: what it reads
// it shows to people and uses to attribute stalls. It goes by what the members say they have in
// flight, and maps no tensor: of those that are named there it reads copies, so that a tensor that
// no member has touched stays a hole whatever the members say.
#ifndef RINGD_PROTO_SHM_JOB_SEGMENT_H_
#define RINGD_PROTO_SHM_JOB_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "proto/base/cache_line.h"
#include "proto/base/doorbell.h"
#include "proto/shm/ordered_operation.h"

namespace ringd {

inline constexpr std::uint64_t kJobSegmentMagic = 0x31424f4a'44474e52;  // "RNGDJOB1"
inline constexpr std::uint32_t kJobSegmentVersion = 5;

// Submissions of one tensor by one member that have not ended everywhere; one more waits for room.
inline constexpr std::uint64_t kOccurrencesInFlight = 4;
// Up to this many bytes a tensor travels in its slot.
inline constexpr std::size_t kInlineBytes = 32;
inline constexpr std::uint32_t kMaxChunks = 28;
// Different names in one job. The segment is sparse: a name costs memory when it is first
// submitted.
inline constexpr std::uint32_t kMaxLocalTensors = 65'536;
// Each member is sent all the others' arenas at once: so many messages fit into a socket's default
// buffer.
inline constexpr std::uint32_t kMaxLocalMembers = 192;
static_assert(kMaxLocalMembers <= 256);  // Reach and Spoiled name them in a byte

struct JobSegmentHeader {
  // Written once by ringd, before any member maps the segment.
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t member_count;
  std::uint64_t segment_bytes;
  std::uint64_t reserved[5];
};
static_assert(sizeof(JobSegmentHeader) == kCacheLineBytes);

// Written by one member (but for its rank, and for the doorbell, which the others ring); read by
// ringd.
struct SharedMember {
  Doorbell doorbell;  // the member's waiters sleep here
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> posted;
  std::atomic<std::uint64_t> ended;   // submissions that have ended, well or not
  std::atomic<std::uint64_t> failed;  // of those, the ones that did not end well
  std::atomic<std::uint64_t> bytes;   // of tensors that ended well
  // The tensor's number + 1 while one of this member's threads reduces a chunk of it.
  std::atomic<std::uint32_t> reducing;
  std::int32_t rank;  // in the job; written once by ringd
  // Of direct reading; written once, before `reach` says so.
  std::uint64_t token_address;
  std::uint64_t token;
  std::int32_t pid;                  // as the member itself sees it
  std::atomic<std::uint32_t> reach;  // Reach::ToWord
  // How many places of its in-flight words the member has used so far.
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> in_flight_places;
};
static_assert(sizeof(SharedMember) == 3 * kCacheLineBytes);

// Whether a member can read the ordinary memory of the others.
struct Reach {
  enum class State : std::uint8_t {
    kUnknown = 0,  // it has not come so far
    kOffered,      // pid and token are there to be read
    kReadsAll,
    kCannot,  // read `member`, because of `error`
    kOff,     // it was told not to
  };
  State state = State::kUnknown;
  std::uint8_t error = 0;   // an errno; 0: what it read was no token
  std::uint8_t member = 0;  // members fit in a byte: kMaxLocalMembers

  constexpr std::uint32_t ToWord() const noexcept {
    return static_cast<std::uint32_t>(state) | std::uint32_t{error} << 8 |
           std::uint32_t{member} << 16;
  }
  static constexpr Reach FromWord(std::uint32_t word) noexcept {
    return {static_cast<State>(word & 0xff), static_cast<std::uint8_t>(word >> 8),
            static_cast<std::uint8_t>(word >> 16)};
  }
};

// Why an occurrence has no result: the source of `member` could not be read.
struct Spoiled {
  std::uint64_t occurrence = 0;
  std::uint8_t error = 0;  // an errno; 0: the member has given the operation up
  std::uint8_t member = 0;

  // Never 0.
  constexpr std::uint64_t ToWord() const noexcept {
    return (occurrence + 1) << 16 | std::uint64_t{error} << 8 | member;
  }
  // Requirement: word is not 0.
  static constexpr Spoiled FromWord(std::uint64_t word) noexcept {
    return {(word >> 16) - 1, static_cast<std::uint8_t>(word >> 8),
            static_cast<std::uint8_t>(word)};
  }
};

struct SharedTensor {
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> work;  // claims and done chunks, see above
  alignas(
      kCacheLineBytes) std::atomic<std::uint64_t> finished;  // occurrences of kind 3b, the last + 1
  // By occurrence % kOccurrencesInFlight: Spoiled::ToWord, or something older. Looked at once the
  // occurrence has finished. The first to say so has said it for all.
  std::atomic<std::uint64_t> spoiled[kOccurrencesInFlight];
  // Chunks that were claimed so that nobody reduces them: a tag and bits as the done ones of `work`
  // (ChunkClaims::Stop).
  std::atomic<std::uint64_t> stopped;
};
static_assert(sizeof(SharedTensor) == 2 * kCacheLineBytes);

enum class SourcePlace : std::uint32_t {
  kArena = 0,  // all of it in the member's arena
  // Chunks that the member is likely to reduce itself (local_chunks.h) are only in its ordinary
  // memory.
  kSplit = 1,
};

struct SubmissionSlot {
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> occurrence;  // the last one posted here, + 1
  std::uint64_t source_offset;                                     // into the member's arena
  std::uint64_t
      destination_offset;  // into the member's arena; the root of a broadcast gets nothing
  std::uint32_t meta_id;   // ringd's number for type, shape, op and the rest; or see above
  SourcePlace source_place;
  union {
    std::byte data[kInlineBytes];
    std::uint64_t ordinary_source;  // of a split one: an address in the member's process
  };
};
static_assert(sizeof(SubmissionSlot) == kCacheLineBytes);

// Where a submission's tensor is, read once: the member may write into its slot at any time, so
// that what was checked is not what a second look finds.
struct SlotPlaces {
  std::uint64_t source_offset;
  std::uint64_t destination_offset;
  std::uint64_t ordinary_source;
  SourcePlace source_place;
};

// Each is loaded exactly once, as the compiler would not promise of an ordinary read.
inline SlotPlaces CopyPlaces(const SubmissionSlot& slot) noexcept {
  SlotPlaces copy{};
  copy.source_offset = __atomic_load_n(&slot.source_offset, __ATOMIC_RELAXED);
  copy.destination_offset = __atomic_load_n(&slot.destination_offset, __ATOMIC_RELAXED);
  copy.ordinary_source = __atomic_load_n(&slot.ordinary_source, __ATOMIC_RELAXED);
  __atomic_load(&slot.source_place, &copy.source_place, __ATOMIC_RELAXED);
  return copy;
}
inline std::uint32_t CopyMetaId(const SubmissionSlot& slot) noexcept {
  return __atomic_load_n(&slot.meta_id, __ATOMIC_RELAXED);
}

// Matching by order: where a slot has the element count. What travels in its slot is in no arena.
inline std::uint64_t& ElementCountOf(SubmissionSlot& slot, bool is_inline) noexcept {
  return is_inline ? slot.source_offset
                   : *reinterpret_cast<std::uint64_t*>(slot.data + sizeof(slot.ordinary_source));
}
inline std::uint64_t CopyElementCount(SubmissionSlot& slot, bool is_inline) noexcept {
  return __atomic_load_n(&ElementCountOf(slot, is_inline), __ATOMIC_RELAXED);
}

// Likewise the scales, if there are any: in the last bytes of the data, of which there are then so
// many less.
inline constexpr std::size_t kScaledInlineBytes = kInlineBytes - sizeof(OrderedScales);
static_assert(kScaledInlineBytes >= 2 * sizeof(std::uint64_t));  // ordinary_source, element count
inline void StoreScales(SubmissionSlot& slot, const OrderedScales& scales) noexcept {
  std::memcpy(slot.data + kScaledInlineBytes, &scales, sizeof(scales));
}
inline OrderedScales CopyScales(const SubmissionSlot& slot) noexcept {
  OrderedScales scales;
  std::memcpy(&scales, slot.data + kScaledInlineBytes, sizeof(scales));
  return scales;
}

// What all members' submissions of one tensor need. Does not own the memory: the segment's, or a
// copy.
//
// Thread safety: immutable; the objects it leads to are atomics or guarded by them.
class TensorView {
 public:
  explicit TensorView(std::byte* base) noexcept : base_(base) {}

  static constexpr std::uint64_t Bytes(std::uint32_t member_count) noexcept {
    return sizeof(SharedTensor) + member_count * kMemberStride;
  }

  SharedTensor& State() const noexcept { return *reinterpret_cast<SharedTensor*>(base_); }
  // How many occurrences of the tensor have ended at the member; written by that member.
  std::atomic<std::uint64_t>& Ended(std::size_t member) const noexcept {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + MemberOffset(member));
  }
  SubmissionSlot& Slot(std::size_t member, std::uint64_t occurrence) const noexcept {
    return *reinterpret_cast<SubmissionSlot*>(
        base_ + MemberOffset(member) + (1 + occurrence % kOccurrencesInFlight) * kCacheLineBytes);
  }

 private:
  static constexpr std::uint64_t kMemberStride = (1 + kOccurrencesInFlight) * kCacheLineBytes;
  static constexpr std::uint64_t MemberOffset(std::size_t member) noexcept {
    return sizeof(SharedTensor) + member * kMemberStride;
  }

  std::byte* base_;
};

// The way to everything behind the header. Does not own the memory.
//
// Thread safety: immutable; the objects it leads to are atomics or guarded by them.
class JobSegmentView {
 public:
  JobSegmentView() noexcept = default;
  JobSegmentView(std::byte* base, std::uint32_t member_count) noexcept
      : base_(base),
        member_count_(member_count),
        tensors_(base + TensorsOffset(member_count)),
        tensor_bytes_(TensorView::Bytes(member_count)) {}

  std::uint32_t member_count() const noexcept { return member_count_; }

  SharedMember& Member(std::size_t member) const noexcept {
    return *reinterpret_cast<SharedMember*>(base_ + sizeof(JobSegmentHeader) +
                                            member * sizeof(SharedMember));
  }
  // Requirement: place < kMaxLocalTensors.
  std::atomic<std::uint64_t>& InFlight(std::size_t member, std::uint32_t place) const noexcept {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(
        base_ + InFlightOffset(member_count_) + (member * kMaxLocalTensors + place) * kWordBytes);
  }

  // Requirement of what follows: tensor < kMaxLocalTensors, member < member_count().
  TensorView Of(std::uint32_t tensor) const noexcept {
    return TensorView(tensors_ + tensor * tensor_bytes_);
  }
  SharedTensor& Tensor(std::uint32_t tensor) const noexcept { return Of(tensor).State(); }
  std::atomic<std::uint64_t>& Ended(std::uint32_t tensor, std::size_t member) const noexcept {
    return Of(tensor).Ended(member);
  }
  SubmissionSlot& Slot(std::uint32_t tensor, std::size_t member,
                       std::uint64_t occurrence) const noexcept {
    return Of(tensor).Slot(member, occurrence);
  }

  // Where the tensors begin: what stands before is all that ringd maps.
  static constexpr std::uint64_t TensorsOffset(std::uint32_t member_count) noexcept {
    return InFlightOffset(member_count) +
           std::uint64_t{member_count} * kMaxLocalTensors * kWordBytes;
  }
  static constexpr std::uint64_t TensorOffset(std::uint32_t tensor,
                                              std::uint32_t member_count) noexcept {
    return TensorsOffset(member_count) + tensor * TensorView::Bytes(member_count);
  }
  static constexpr std::uint64_t SegmentBytes(std::uint32_t member_count) noexcept {
    return TensorOffset(kMaxLocalTensors, member_count);
  }

 private:
  static constexpr std::uint64_t kWordBytes = sizeof(std::atomic<std::uint64_t>);
  static constexpr std::uint64_t InFlightOffset(std::uint32_t member_count) noexcept {
    return sizeof(JobSegmentHeader) + member_count * sizeof(SharedMember);
  }

  std::byte* base_ = nullptr;
  std::uint32_t member_count_ = 0;
  // Both follow from these, and are asked for several times in each operation.
  std::byte* tensors_ = nullptr;
  std::uint64_t tensor_bytes_ = 0;
};

// Writes the header and the members' ranks into a zeroed segment of SegmentBytes(ranks.size()), of
// which as much as TensorsOffset is mapped. ringd only.
void InitializeJobSegment(std::byte* base, std::span<const std::int32_t> ranks) noexcept;

// Checks what a member was handed.
//   kFailedPrecondition: the versions differ (both are named). kInvalidArgument: it makes no sense.
absl::Status CheckJobSegment(const JobSegmentHeader& header, std::uint64_t mapped_bytes);

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_JOB_SEGMENT_H_
