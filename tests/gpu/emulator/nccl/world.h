// What the ranks of one communicator share, between processes: who they are, how far each is, and
// a piece of memory of each through which its elements go.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_WORLD_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_WORLD_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/nccl/nccl_types.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "tests/gpu/emulator/nccl/cuda_access.h"

namespace ringd::emulator {

constexpr int kMaxRanks = 64;
constexpr std::size_t kChunkBytes = 64 << 10;
constexpr std::size_t kNameBytes = 33;

// What all ranks must agree about in one collective. NCCL itself compares nothing.
struct CallKey {
  std::int32_t kind;
  std::int32_t type;
  std::int32_t op;
  std::int32_t root;
  std::uint64_t count;
  // Registered buffers are everybody's or nobody's, and lie in a symmetric window alike.
  std::int32_t registration;  // 0: none, 1: registered, 2: in symmetric windows
  std::uint64_t send_offset;  // there
  std::uint64_t receive_offset;
  bool operator==(const CallKey&) const = default;
};

struct Identity {
  std::uint64_t host;
  Uuid device;
  std::int32_t pid;
};

// One rank's cell: the rank alone writes it, all others read it. A store with release order
// publishes what was written before, memory of the chunk included; readers acquire.
struct alignas(64) RankCell {
  Identity identity;
  CallKey call;
  std::int32_t color;
  std::int32_t key;
  std::uint64_t window_bytes;
  std::int32_t window_flags;
  std::atomic<std::uint64_t> posted{0};    // collectives whose `call` has been there
  std::atomic<std::uint64_t> matched{0};   // and for which this rank has read all others'
  std::atomic<std::uint64_t> written{0};   // chunks
  std::atomic<std::uint64_t> consumed{0};  // chunks of all ranks that this one needs no more
  std::atomic<std::uint64_t> splits{0};
  std::atomic<std::uint64_t> splits_read{0};
  std::atomic<std::uint64_t> windows{0};
  std::atomic<std::uint64_t> windows_read{0};
  std::atomic<std::uint32_t> has_finalized{0};
  std::atomic<std::uint32_t> has_aborted{0};
};

// Asked again and again while a call waits: true to give up.
using GiveUp = std::function<bool()>;

// Thread safety: the cells as said there; everything else is immutable after Join.
// Ownership: of the mapping, which goes with the last process that has it, however that ends.
class World {
 public:
  // A name for a new world, and a thread that brings its ranks together. It answers on a socket of
  // this process: if that ends before, the ranks fail or wait in vain, as with NCCL's bootstrap.
  // "" if there is no socket to be had.
  static std::string Found();
  // The same for a name that all ranks work out.
  static bool Found(const std::string& name);

  // Waits until all `size` ranks have come, without end.
  //   kNcclRemoteError: nobody answers to that name.  kNcclInternalError: `give_up` said so.
  static NcclResult Join(const std::string& name, int size, int rank, int device,
                         const GiveUp& give_up, std::unique_ptr<World>* world);

  const std::string& name() const { return name_; }
  int size() const { return size_; }
  int rank() const { return rank_; }
  RankCell& cell(int rank) const { return cells_[rank]; }
  RankCell& own() const { return cells_[rank_]; }
  std::byte* chunk(int rank) const {
    return chunks_ + static_cast<std::size_t>(rank) * kChunkBytes;
  }

  bool IsOnThisHost(int rank) const { return cells_[rank].identity.host == own().identity.host; }
  // A rank with the same device of the same host as this one; -1 if there is none.
  int FindSameDevice() const;
  // A rank on another host that has ended or aborted, which breaks its connections; -1: none.
  // A rank on this host leaves no such trace: NCCL goes through memory there.
  int FindLost() const;

  // Whether `counter` of all ranks has come to `value`.
  bool AllReached(std::atomic<std::uint64_t> RankCell::*counter, std::uint64_t value) const;

 private:
  World() = default;
  NcclResult Map(UniqueFd memory);

  std::string name_;
  int size_ = 0;
  int rank_ = 0;
  MemoryMapping mapping_;
  RankCell* cells_ = nullptr;
  std::byte* chunks_ = nullptr;
  std::vector<UniqueFd> processes_;  // by rank
};

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_WORLD_H_
