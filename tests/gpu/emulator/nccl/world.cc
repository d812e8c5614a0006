#include "tests/gpu/emulator/nccl/world.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tests/gpu/emulator/nccl/last_error.h"
#include "tests/gpu/emulator/nccl/rendezvous.h"

namespace ringd::emulator {
namespace {

// As NCCL tells hosts apart: by their names, unless NCCL_HOSTID says otherwise.
std::uint64_t HostHash() {
  const char* const given = std::getenv("NCCL_HOSTID");
  char name[256] = "";
  if (given == nullptr) ::gethostname(name, sizeof name - 1);
  return std::hash<std::string_view>()(given == nullptr ? name : given);
}

bool HasEnded(int process) {
  pollfd event{process, POLLIN, 0};
  return ::poll(&event, 1, 0) == 1;
}

}  // namespace

std::string World::Found() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) return "";
  char name[kNameBytes];
  for (std::size_t i = 0; i < sizeof bytes; ++i) std::snprintf(name + 2 * i, 3, "%02x", bytes[i]);
  return Found(name) ? name : "";
}

bool World::Found(const std::string& name) { return ServeRendezvous(name); }

NcclResult World::Join(const std::string& name, int size, int rank, int device,
                       const GiveUp& give_up, std::unique_ptr<World>* world) {
  const CudaAccess* const cuda = CudaAccess::Find();
  Hello hello{size, rank, {HostHash(), {}, ::getpid()}};
  if (cuda == nullptr || !cuda->UuidOf(device, &hello.identity.device)) {
    return kNcclUnhandledCudaError;
  }
  UniqueFd memory;
  const NcclResult attended = AttendRendezvous(name, hello, give_up, &memory);
  if (attended != kNcclSuccess) return attended;
  std::unique_ptr<World> made(new World);
  made->name_ = name;
  made->size_ = size;
  made->rank_ = rank;
  const NcclResult mapped = made->Map(std::move(memory));
  if (mapped == kNcclSuccess) *world = std::move(made);
  return mapped;
}

NcclResult World::Map(UniqueFd memory) {
  auto mapping = MemoryMapping::MapSealed(memory.get(), WorldBytes(size_));
  if (!mapping.ok()) return Failed(kNcclSystemError, std::string(mapping.status().message()));
  mapping_ = *std::move(mapping);
  cells_ = reinterpret_cast<RankCell*>(mapping_.data());
  chunks_ = mapping_.data() + static_cast<std::size_t>(size_) * sizeof(RankCell);
  for (int rank = 0; rank < size_; ++rank) {
    // -1 of one that has already ended, which FindLost takes for that.
    const long process = ::syscall(SYS_pidfd_open, cells_[rank].identity.pid, 0);
    processes_.emplace_back(static_cast<int>(process));
  }
  return kNcclSuccess;
}

int World::FindSameDevice() const {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_ && IsOnThisHost(rank) &&
        cells_[rank].identity.device == own().identity.device) {
      return rank;
    }
  }
  return -1;
}

int World::FindLost() const {
  for (int rank = 0; rank < size_; ++rank) {
    const UniqueFd& process = processes_[rank];
    if (IsOnThisHost(rank)) continue;
    if (!process.valid() || HasEnded(process.get()) ||
        cells_[rank].has_aborted.load(std::memory_order_acquire) != 0) {
      return rank;
    }
  }
  return -1;
}

bool World::AllReached(std::atomic<std::uint64_t> RankCell::*counter, std::uint64_t value) const {
  for (int rank = 0; rank < size_; ++rank) {
    if ((cells_[rank].*counter).load(std::memory_order_acquire) < value) return false;
  }
  return true;
}

}  // namespace ringd::emulator
