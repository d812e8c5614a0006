// NCCL's functions that make and end communicators.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/emulator/nccl/communicator.h"
#include "tests/gpu/emulator/nccl/group.h"
#include "tests/gpu/emulator/nccl/last_error.h"
#include "tests/gpu/emulator/nccl/settings.h"

using namespace ringd;            // NOLINT(google-build-using-namespace)
using namespace ringd::emulator;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::chrono::microseconds kNap{200};
constexpr char kIdMark[] = "ringd-emulated-nccl";

std::string NameOf(const NcclUniqueId& id) {
  if (std::memcmp(id.bytes, kIdMark, sizeof kIdMark) != 0) return "";
  const char* const name = id.bytes + sizeof kIdMark;
  return std::string(name, ::strnlen(name, kNameBytes - 1));
}

// Null if it is none that ncclGetUniqueId and NCCL_CONFIG_INITIALIZER would give.
bool IsSound(const NcclConfig* config) {
  return config == nullptr ||
         (config->magic == kNcclConfigMagic && config->size >= 24 &&
          (config->blocking == kNcclUndefined || config->blocking == 0 || config->blocking == 1));
}

bool IsBlocking(const NcclConfig* config, bool otherwise) {
  return config == nullptr || config->blocking == kNcclUndefined ? otherwise
                                                                 : config->blocking == 1;
}

// `job` makes `made` what it is to be. A blocking one that fails is gone again.
NcclResult Make(const std::shared_ptr<Communicator>& made, NcclComm** handle, Job job) {
  *handle = made->handle();
  return Group::Submit(made, Group::Work::kMeeting, [made, handle, job = std::move(job)] {
    const NcclResult result = job();
    if (result != kNcclSuccess && made->is_blocking()) {
      made->Free();
      *handle = nullptr;
    }
    return result;
  });
}

NcclResult InitRank(NcclComm** handle, int size, const NcclUniqueId& id, int rank,
                    const NcclConfig* config) {
  if (handle == nullptr || size < 1 || size > kMaxRanks || rank < 0 || rank >= size ||
      !IsSound(config)) {
    return Failed(kNcclInvalidArgument, "no such rank, or no sound configuration");
  }
  const std::string name = NameOf(id);
  if (name.empty()) return Failed(kNcclInvalidArgument, "no id of ncclGetUniqueId");
  const CudaAccess* const cuda = CudaAccess::Find();
  const int device = cuda == nullptr ? -1 : cuda->CurrentDevice();
  if (device < 0) return kNcclUnhandledCudaError;
  auto made = Communicator::Create(device, IsBlocking(config, true));
  return Make(made, handle, [made, name, size, rank] { return made->Join(name, size, rank); });
}

bool WaitFor(const Communicator& communicator, std::atomic<std::uint64_t> RankCell::*counter,
             std::uint64_t value) {
  while (!communicator.world().AllReached(counter, value)) {
    if (communicator.aborted()) return false;
    std::this_thread::sleep_for(kNap);
  }
  return true;
}

// Ranks that gave the same color, in the order of their new ranks: by key, then by old rank.
std::vector<int> MembersOf(const World& world, int color) {
  std::vector<int> members;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.cell(rank).color == color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(), [&world](int one, int other) {
    return world.cell(one).key < world.cell(other).key;
  });
  return members;
}

std::string ChildName(const World& parent, std::uint64_t round, int color) {
  const std::string text =
      parent.name() + "/" + std::to_string(round) + "/" + std::to_string(color);
  char name[kNameBytes];
  std::snprintf(name, sizeof name, "%016zx%016zx", std::hash<std::string_view>()(text),
                std::hash<std::string_view>()(text + "!"));
  return name;
}

// All ranks of the parent take part. `child` is null for those that give no color.
NcclResult Split(const Communicator& parent, int color, int key, std::uint64_t round,
                 Communicator* child) {
  World& world = parent.world();
  world.own().color = color;
  world.own().key = key;
  world.own().splits.store(round, std::memory_order_release);
  if (!WaitFor(parent, &RankCell::splits, round)) return kNcclInternalError;
  const std::vector<int> members = MembersOf(world, color);
  world.own().splits_read.store(round, std::memory_order_release);
  if (!WaitFor(parent, &RankCell::splits_read, round)) return kNcclInternalError;
  if (child == nullptr) return kNcclSuccess;
  const auto self = std::find(members.begin(), members.end(), world.rank());
  const std::string name = ChildName(world, round, color);
  if (self == members.begin() && !World::Found(name)) {
    return Failed(kNcclSystemError, "no socket for the new communicator");
  }
  return child->Join(name, static_cast<int>(members.size()),
                     static_cast<int>(self - members.begin()));
}

// A handle that is alive, with a call's ordinary preconditions.
NcclResult Need(const NcclComm* handle, std::shared_ptr<Communicator>* communicator) {
  *communicator = Communicator::Find(handle);
  return *communicator == nullptr ? kNcclInvalidArgument : (*communicator)->CheckReady();
}

template <typename Value>
NcclResult Tell(const NcclComm* handle, int* out, const Value& value) {
  std::shared_ptr<Communicator> communicator;
  if (const NcclResult result = Need(handle, &communicator); result != kNcclSuccess) return result;
  if (out == nullptr) return Failed(kNcclInvalidArgument, "no place for the answer");
  *out = value(*communicator);
  return kNcclSuccess;
}

}  // namespace

extern "C" {

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  if (id == nullptr) return Failed(kNcclInvalidArgument, "no place for the id");
  const std::string name = World::Found();
  if (name.empty()) return Failed(kNcclSystemError, "no socket for the bootstrap");
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::memcpy(id->bytes, kIdMark, sizeof kIdMark);
  std::memcpy(id->bytes + sizeof kIdMark, name.data(), name.size());
  return kNcclSuccess;
}

NcclResult ncclCommInitRankConfig(NcclComm** comm, int size, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  HangIfAsked("ncclCommInitRankConfig");
  return Group::Note(InitRank(comm, size, id, rank, config));
}

// The first id serves: what several are good for, the load on the bootstrap, is not emulated.
NcclResult ncclCommInitRankScalable(NcclComm** comm, int size, int rank, int id_count,
                                    NcclUniqueId* ids, NcclConfig* config) {
  if (ids == nullptr || id_count < 1) {
    return Group::Note(Failed(kNcclInvalidArgument, "no unique id"));
  }
  return Group::Note(InitRank(comm, size, ids[0], rank, config));
}

NcclResult ncclCommSplit(NcclComm* comm, int color, int key, NcclComm** made, NcclConfig* config) {
  std::shared_ptr<Communicator> parent;
  if (const NcclResult result = Need(comm, &parent); result != kNcclSuccess) {
    return Group::Note(result);
  }
  if (made == nullptr || color < kNcclSplitNoColor || !IsSound(config)) {
    return Group::Note(Failed(kNcclInvalidArgument, "no such color, or no sound configuration"));
  }
  const std::uint64_t round = parent->NextSplit();
  *made = nullptr;
  if (color == kNcclSplitNoColor) {
    return Group::Submit(parent, Group::Work::kMeeting,
                         [=] { return Split(*parent, color, key, round, nullptr); });
  }
  const auto child =
      Communicator::Create(parent->device(), IsBlocking(config, parent->is_blocking()));
  if (!child->is_blocking()) parent->SetBusy();
  return Group::Note(Make(child, made, [=] {
    const NcclResult result = Split(*parent, color, key, round, child.get());
    parent->SetIdle();
    return result;
  }));
}

NcclResult ncclCommAbort(NcclComm* comm) {
  HangIfAsked("ncclCommAbort");
  const auto communicator = Communicator::Find(comm);
  if (communicator == nullptr) return kNcclInvalidArgument;
  communicator->Abort();
  communicator->Free();
  return kNcclSuccess;
}

NcclResult ncclCommFinalize(NcclComm* comm) {
  std::shared_ptr<Communicator> communicator;
  if (const NcclResult result = Need(comm, &communicator); result != kNcclSuccess) return result;
  if (communicator->has_finalized()) {
    return Failed(kNcclInvalidArgument, "the communicator is finalized already");
  }
  if (const NcclResult kept = communicator->CheckRegistered(); kept != kNcclSuccess) return kept;
  return Group::Submit(communicator, Group::Work::kMeeting,
                       [communicator] { return communicator->Finalize(); });
}

NcclResult ncclCommDestroy(NcclComm* comm) {
  std::shared_ptr<Communicator> communicator;
  if (const NcclResult result = Need(comm, &communicator); result != kNcclSuccess) return result;
  // What is still registered goes with it.
  if (const NcclResult kept = communicator->CheckRegistered(); kept != kNcclSuccess) return kept;
  const NcclResult finalized =
      communicator->has_finalized() ? kNcclSuccess : communicator->Finalize();
  communicator->Free();
  return finalized;
}

NcclResult ncclCommGetAsyncError(NcclComm* comm, NcclResult* error) {
  const auto communicator = Communicator::Find(comm);
  if (communicator == nullptr || error == nullptr) return kNcclInvalidArgument;
  *error = communicator->state();
  return kNcclSuccess;
}

NcclResult ncclCommCount(const NcclComm* comm, int* count) {
  return Tell(comm, count, [](const Communicator& one) { return one.world().size(); });
}

NcclResult ncclCommUserRank(const NcclComm* comm, int* rank) {
  return Tell(comm, rank, [](const Communicator& one) { return one.world().rank(); });
}

NcclResult ncclCommCuDevice(const NcclComm* comm, int* device) {
  return Tell(comm, device, [](const Communicator& one) { return one.device(); });
}

}  // extern "C"
