// LocalOperations' chunks: where their bytes are, and how they are combined.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/core/lanes/node/local_operations.h"
#include "client/core/tensors/local_chunks.h"
#include "proto/base/per_member.h"
#include "proto/operations/operation_traits.h"
#include "proto/reduce/tensor_scaling.h"

namespace ringd::client {
namespace {

// From this size on, all members' bytes counted, results would only push each other out of the
// caches.
constexpr std::uint64_t kStreamFromBytes = std::uint64_t{4} << 20;

}  // namespace

// The bytes of one chunk, or of a piece of one.
struct LocalOperations::ChunkMemory {
  explicit ChunkMemory(std::uint32_t member_count)
      : sources(member_count), destinations(member_count) {}

  PerMember<const void*> sources;  // null: not read, or in another process
  PerMember<void*> destinations;   // null: not written
  // Its address in the other process; only where there is one.
  std::optional<PerMember<std::optional<std::uint64_t>>> elsewhere;
  std::uint32_t elsewhere_count = 0;
  std::uint64_t bytes = 0;
  Streaming streaming = Streaming::kCached;
};

TensorScaling LocalOperations::ScalingOf(const TensorDescription& tensor) const noexcept {
  return ringd::ScalingOf(tensor.data_type, tensor.op, tensor.prescale, tensor.postscale,
                          static_cast<int>(member_count_), /*several_nodes=*/false);
}

bool LocalOperations::Locate(const Chunk& chunk, ChunkMemory& memory) {
  const TensorDescription& description = chunk.registration->description;
  const std::uint64_t bytes = chunk.registration->bytes;
  const std::uint64_t begin = ChunkBytes(bytes) * static_cast<std::uint64_t>(chunk.chunk);
  memory.bytes = std::min(ChunkBytes(bytes), bytes - begin);
  const OperationTraits& traits = TraitsOf(description.kind);
  const std::uint32_t root = traits.rooted ? MemberOf(description.root_rank) : 0;
  // This process's own addresses come from its own memory, never from the slot, where others can
  // write.
  const OperationEnd& own = chunk.operation->end;
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    const SlotPlaces slot = CopyPlaces(segment_.Slot(chunk.tensor, m, chunk.occurrence));
    const JobMemory::MemberArena& arena = memory_.arenas()[m];
    const auto in_arena = [&](std::uint64_t offset) {
      return bytes <= arena.bytes && offset <= arena.bytes - bytes;
    };
    const std::uint64_t from = slot.source_offset;
    const std::uint64_t to = slot.destination_offset;
    const bool is_read = traits.Reads(m == root);
    const bool is_written = traits.Writes(m == root);
    const auto is_home = [&] {
      return (HomeChunks(m, member_count_, chunk.chunk_count) >> chunk.chunk & 1) != 0;
    };
    const bool direct = m == self_ ? own.direct_source != nullptr
                                   : slot.source_place == SourcePlace::kSplit && is_home();
    if ((is_read && !direct && !in_arena(from)) || (is_written && !in_arena(to))) {
      state_.Lose(
          absl::InternalError(absl::StrCat("rank ", ranks_[m], " broke the protocol: its tensor '",
                                           description.name, "' lies outside its arena")));
      return false;
    }
    if (is_written) memory.destinations[m] = arena.base + to + begin;
    if (!is_read) continue;
    if (!direct) {
      memory.sources[m] = arena.base + from + begin;
    } else if (m == self_) {
      memory.sources[m] = static_cast<const std::byte*>(own.direct_source) + begin;
    } else {
      if (memory.elsewhere_count == 0) memory.elsewhere.emplace(member_count_);
      (*memory.elsewhere)[m] = slot.ordinary_source + begin;
      ++memory.elsewhere_count;
    }
  }
  if (own.direct_destination != nullptr) {
    memory.destinations[self_] = static_cast<std::byte*>(own.direct_destination) + begin;
  }
  // Where this member's tensor lies in ordinary memory the others' do as a rule, which then copy
  // the result out of their blocks.
  const bool copied_next = own.direct_source != nullptr || own.direct_destination != nullptr;
  const bool past = bytes * member_count_ >= kStreamFromBytes && !copied_next;
  memory.streaming = past ? Streaming::kPast : Streaming::kCached;
  return true;
}

bool LocalOperations::Reduce(const Chunk& chunk, std::uint64_t sequence, bool* taken) {
  own_state_.reducing.store(chunk.tensor + 1, std::memory_order_relaxed);
  ChunkMemory memory(member_count_);
  if (!Locate(chunk, memory)) {
    MutexLock lock(mutex_);
    LeaveChunk(chunk);
    return false;
  }
  // Once one source could not be read there is no result any more.
  if (!SpoiledOf(chunk.tensor, chunk.occurrence).has_value()) {
    std::optional<Spoiled> spoiled;
    const std::uint64_t begin_ns = memory.bytes < kChunkTracedFromBytes ? 0 : MonotonicNanos();
    if (memory.elsewhere_count == 0) {
      Combine(chunk.registration->description, memory);
    } else {
      spoiled = CombineByPieces(chunk, memory);
    }
    if (begin_ns != 0) {
      TraceSince(TraceStage::kReduced, {chunk.tensor, chunk.occurrence}, begin_ns);
    }
    if (spoiled.has_value()) {
      Spoil(chunk.tensor, *spoiled);
    } else if (chunk.operation->end.direct_destination != nullptr) {
      chunk.operation->written_chunks.fetch_or(1U << chunk.chunk, std::memory_order_relaxed);
    }
  }
  bool ended = false;
  {
    MutexLock lock(mutex_);
    LeaveChunk(chunk);
    if (!ChunkClaims(segment_.Tensor(chunk.tensor), chunk.occurrence, chunk.chunk_count)
             .Done(chunk.chunk)) {
      return false;
    }
    ended = EndInOrder(*chunk.operation->tensor.load(std::memory_order_relaxed));
    if (ended) TakeIfPlain(sequence, taken);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // as in Announce
  RingSleepers();
  return ended;
}

void LocalOperations::LeaveChunk(const Chunk& chunk) {
  --chunk.operation->own_chunks;
  AddReducers(-1);
}

// All members' sources are at hand.
void LocalOperations::Combine(const TensorDescription& tensor, ChunkMemory& memory) const {
  const std::uint64_t elements = memory.bytes / SizeOf(tensor.data_type);
  if (!TraitsOf(tensor.kind).combines) {
    const void* const root = memory.sources[MemberOf(tensor.root_rank)];
    for (void* const destination : memory.destinations.span()) {
      if (destination == nullptr || destination == root) continue;
      CopyScaled(tensor.data_type, destination, root, elements, {}, memory.streaming);
    }
    return;
  }
  const TensorScaling scaling = ScalingOf(tensor);
  CombineContributions(tensor.data_type, tensor.op, scaling.prescale, nullptr,
                       memory.sources.span(), memory.destinations.span(), elements, scaling.result,
                       memory.streaming);
}

std::optional<Spoiled> LocalOperations::CombineByPieces(const Chunk& chunk,
                                                        const ChunkMemory& memory) {
  std::unique_ptr<std::byte[]> scratch = TakeScratch();
  const std::uint64_t piece_bytes = PieceBytes(memory.elsewhere_count);
  std::optional<Spoiled> spoiled;
  for (std::uint64_t at = 0; at < memory.bytes && !spoiled.has_value(); at += piece_bytes) {
    ChunkMemory piece(member_count_);
    piece.bytes = std::min(piece_bytes, memory.bytes - at);
    piece.streaming = memory.streaming;
    std::byte* room = scratch.get();
    for (std::uint32_t m = 0; m < member_count_ && !spoiled.has_value(); ++m) {
      if (memory.destinations[m] != nullptr) {
        piece.destinations[m] = static_cast<std::byte*>(memory.destinations[m]) + at;
      }
      if (memory.sources[m] != nullptr) {
        piece.sources[m] = static_cast<const std::byte*>(memory.sources[m]) + at;
      } else if (memory.elsewhere.has_value() && (*memory.elsewhere)[m].has_value()) {
        const int error = direct_reads_.Read(m, *(*memory.elsewhere)[m] + at, {room, piece.bytes});
        if (error != DirectReads::kOk) {
          spoiled = Spoiled{chunk.occurrence,
                            static_cast<std::uint8_t>(error == DirectReads::kWithdrawn ? 0 : error),
                            static_cast<std::uint8_t>(m)};
        }
        piece.sources[m] = room;
        room += piece_bytes;
      }
    }
    if (!spoiled.has_value()) Combine(chunk.registration->description, piece);
  }
  MutexLock lock(mutex_);
  idle_scratch_.push_back(std::move(scratch));
  return spoiled;
}

void LocalOperations::Spoil(std::uint32_t tensor, const Spoiled& spoiled) noexcept {
  std::atomic<std::uint64_t>& word =
      segment_.Tensor(tensor).spoiled[spoiled.occurrence % kOccurrencesInFlight];
  std::uint64_t before = word.load(std::memory_order_relaxed);
  // Who comes later for the same occurrence finds it said. Released, as `finished` is, to who looks
  // then.
  while (before == 0 || Spoiled::FromWord(before).occurrence != spoiled.occurrence) {
    if (word.compare_exchange_weak(before, spoiled.ToWord(), std::memory_order_acq_rel)) return;
  }
}

std::unique_ptr<std::byte[]> LocalOperations::TakeScratch() {
  {
    MutexLock lock(mutex_);
    if (!idle_scratch_.empty()) {
      std::unique_ptr<std::byte[]> scratch = std::move(idle_scratch_.back());
      idle_scratch_.pop_back();
      return scratch;
    }
  }
  return std::make_unique_for_overwrite<std::byte[]>(scratch_bytes_);
}

}  // namespace ringd::client
