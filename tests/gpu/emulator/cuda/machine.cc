#include "tests/gpu/emulator/cuda/machine.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace ringd::emulator {
namespace {

constexpr std::uint64_t kMagic = 0x72696e6764475055;
// The clients of MPS run as one: the server's context.
constexpr int kMpsParty = kMaxProcesses;
constexpr int kNobody = -1;

std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

struct ProcessPlace {
  bool taken;
  bool mps;
  unsigned user;
  bool has_context[kMaxDevices];
  std::atomic<int> sticky;
};

struct DeviceState {
  std::size_t used_bytes[kMaxProcesses];
  int wanting[kMaxProcesses];
  int running[kMaxProcesses];
  int owner;  // a party
  std::int64_t slice_end;
};

// Zero bytes are an unborn one. Layout: only processes of one build share a file.
struct MachineState {
  std::uint64_t magic;
  pthread_mutex_t mutex;  // robust: guards all but the atomics
  ProcessPlace places[kMaxProcesses];
  DeviceState devices[kMaxDevices];
  EventCell events[kMaxSharedEvents];
};

namespace {

// A holder that died leaves counters that are right or belong to the dead, who are swept.
class SharedLock {
 public:
  explicit SharedLock(MachineState* state) : mutex_(&state->mutex) {
    if (::pthread_mutex_lock(mutex_) == EOWNERDEAD) ::pthread_mutex_consistent(mutex_);
  }
  ~SharedLock() { ::pthread_mutex_unlock(mutex_); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  pthread_mutex_t* const mutex_;
};

void Begin(MachineState* state) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&state->mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  for (DeviceState& device : state->devices) device.owner = kNobody;
  state->magic = kMagic;
}

// A record lock on the place's byte: the kernel drops it with the process, and forked children do
// not inherit it. (It would also go if the process closed another descriptor of the file.)
struct flock PlaceLock(int place) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Machine::Machine(const Settings& settings) : settings_(settings) {
  const bool shared = !settings.machine.empty();
  descriptor_ = shared ? ::open(settings.machine.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)
                       : ::memfd_create("ringd-emulated-machine", MFD_CLOEXEC);
  if (descriptor_ < 0) Die("emulated CUDA driver: RINGD_EMULATOR_CUDA_MACHINE");
  // One process begins it. The others wait.
  ::flock(descriptor_, LOCK_EX);
  ::fchmod(descriptor_, 0666);
  if (::ftruncate(descriptor_, sizeof(MachineState)) != 0) Die("emulated CUDA driver: ftruncate");
  void* const memory =
      ::mmap(nullptr, sizeof(MachineState), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) Die("emulated CUDA driver: mmap");
  state_ = static_cast<MachineState*>(memory);
  if (state_->magic != kMagic) Begin(state_);
  ::flock(descriptor_, LOCK_UN);
}

CUresult Machine::CheckMps() const {
  if (settings_.mps == Mps::kOff) return CUDA_SUCCESS;
  for (const ProcessPlace& other : state_->places) {
    if (!other.taken || !other.mps) continue;
    if (settings_.mps == Mps::kOneUser && other.user != settings_.user) {
      return CUDA_ERROR_MPS_SERVER_NOT_READY;
    }
    // The server takes no new client before the failed ones are gone.
    if (other.sticky.load(std::memory_order_acquire) != 0) return CUDA_ERROR_MPS_SERVER_NOT_READY;
  }
  return CUDA_SUCCESS;
}

CUresult Machine::Join() {
  const SharedLock lock(state_);
  SweepDead();
  const CUresult refused = CheckMps();
  if (refused != CUDA_SUCCESS) return refused;
  for (int place = 0; place < kMaxProcesses; ++place) {
    ProcessPlace& mine = state_->places[place];
    if (mine.taken) continue;
    struct flock record = PlaceLock(place);
    if (::fcntl(descriptor_, F_SETLK, &record) != 0) continue;
    mine.taken = true;
    mine.mps = settings_.mps != Mps::kOff;
    mine.user = settings_.user;
    place_ = place;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
}

bool Machine::IsAlive(int place) const {
  if (place == place_) return true;
  struct flock record = PlaceLock(place);
  return ::fcntl(descriptor_, F_GETLK, &record) != 0 || record.l_type != F_UNLCK;
}

void Machine::SweepDead() {
  for (int place = 0; place < kMaxProcesses; ++place) {
    ProcessPlace& other = state_->places[place];
    if (!other.taken || IsAlive(place)) continue;
    for (DeviceState& device : state_->devices) {
      device.used_bytes[place] = 0;
      device.wanting[place] = 0;
      device.running[place] = 0;
    }
    for (EventCell& cell : state_->events) {
      if (cell.owner == place + 1) cell.owner = 0;
    }
    for (bool& exists : other.has_context) exists = false;
    other.sticky = 0;
    other.taken = false;
  }
}

bool Machine::TakeMemory(int device, std::size_t bytes) {
  for (const bool swept : {false, true}) {
    const SharedLock lock(state_);
    if (swept) SweepDead();
    DeviceState& state = state_->devices[device];
    std::size_t used = 0;
    for (const std::size_t of_one : state.used_bytes) used += of_one;
    if (used > settings_.memory_bytes || bytes > settings_.memory_bytes - used) continue;
    state.used_bytes[place_] += bytes;
    return true;
  }
  return false;
}

void Machine::GiveMemory(int device, std::size_t bytes) {
  const SharedLock lock(state_);
  state_->devices[device].used_bytes[place_] -= bytes;
}

std::size_t Machine::FreeMemory(int device) {
  const SharedLock lock(state_);
  SweepDead();
  std::size_t used = 0;
  for (const std::size_t of_one : state_->devices[device].used_bytes) used += of_one;
  return used < settings_.memory_bytes ? settings_.memory_bytes - used : 0;
}

void Machine::SetContext(int device, bool exists) {
  const SharedLock lock(state_);
  state_->places[place_].has_context[device] = exists;
}

// Acquire: pairs with FailDevice of another process.
CUresult Machine::sticky() const {
  if (place_ < 0) return CUDA_SUCCESS;
  return static_cast<CUresult>(state_->places[place_].sticky.load(std::memory_order_acquire));
}

void Machine::FailHere(CUresult result) {
  int none = 0;
  state_->places[place_].sticky.compare_exchange_strong(none, result, std::memory_order_acq_rel);
}

void Machine::FailDevice(int device, CUresult result) {
  const SharedLock lock(state_);
  for (ProcessPlace& place : state_->places) {
    if (!place.taken || !place.has_context[device]) continue;
    int none = 0;
    place.sticky.compare_exchange_strong(none, result, std::memory_order_acq_rel);
  }
}

void Machine::FailWork(int device, CUresult result) {
  FailHere(result);
  if (settings_.mps == Mps::kOff) return;
  const SharedLock lock(state_);
  for (ProcessPlace& place : state_->places) {
    if (!place.taken || !place.mps || !place.has_context[device]) continue;
    int none = 0;
    place.sticky.compare_exchange_strong(none, result, std::memory_order_acq_rel);
  }
}

int Machine::Party(int place) const { return state_->places[place].mps ? kMpsParty : place; }

int Machine::RunningOf(int device, int party) const {
  int running = 0;
  for (int place = 0; place < kMaxProcesses; ++place) {
    if (state_->places[place].taken && Party(place) == party) {
      running += state_->devices[device].running[place];
    }
  }
  return running;
}

bool Machine::IsWanted(int device, int party) const {
  for (int place = 0; place < kMaxProcesses; ++place) {
    if (state_->places[place].taken && Party(place) == party &&
        state_->devices[device].wanting[place] > 0) {
      return true;
    }
  }
  return false;
}

int Machine::NextWanting(int device, int after) const {
  constexpr int kParties = kMaxProcesses + 1;
  for (int step = 1; step <= kParties; ++step) {
    const int party = (after + step + kParties) % kParties;
    if (IsWanted(device, party)) return party;
  }
  return kNobody;
}

void Machine::Want(int device) {
  const SharedLock lock(state_);
  ++state_->devices[device].wanting[place_];
}

void Machine::Unwant(int device) {
  const SharedLock lock(state_);
  --state_->devices[device].wanting[place_];
}

bool Machine::TryBegin(int device) {
  const SharedLock lock(state_);
  DeviceState& state = state_->devices[device];
  const int mine = Party(place_);
  const std::int64_t now = Now();
  const bool over = now >= state.slice_end;
  if (over && state.owner != mine) SweepDead();
  const bool idle = state.owner == kNobody || RunningOf(device, state.owner) == 0;
  if (idle && (over || state.owner == kNobody || !IsWanted(device, state.owner))) {
    state.owner = NextWanting(device, state.owner);
    state.slice_end = now + settings_.slice.count();
  } else if (over && NextWanting(device, state.owner) != mine) {
    return false;  // others want it: nothing new begins before they have had their slices
  }
  if (state.owner != mine) return false;
  ++state.running[place_];
  return true;
}

void Machine::End(int device) {
  const SharedLock lock(state_);
  --state_->devices[device].running[place_];
}

int Machine::TakeEvent() {
  const SharedLock lock(state_);
  SweepDead();
  for (int number = 0; number < kMaxSharedEvents; ++number) {
    EventCell& cell = state_->events[number];
    if (cell.owner != 0) continue;
    cell.owner = place_ + 1;
    ++cell.generation;
    cell.recorded = 0;
    cell.done = 0;
    return number;
  }
  return -1;
}

void Machine::GiveEvent(int number) {
  const SharedLock lock(state_);
  state_->events[number].owner = 0;
}

EventCell* Machine::event(int number) {
  return number >= 0 && number < kMaxSharedEvents ? &state_->events[number] : nullptr;
}

}  // namespace ringd::emulator
