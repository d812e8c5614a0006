// What the processes of one pretended machine share: its GPUs' memory, whose turn each GPU is,
// which processes MPS serves, fatal errors, and events that pass between processes.
#ifndef RINGD_TESTS_GPU_EMULATOR_CUDA_MACHINE_H_
#define RINGD_TESTS_GPU_EMULATOR_CUDA_MACHINE_H_

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/gpu/emulator/cuda/settings.h"

namespace ringd::emulator {

constexpr int kMaxDevices = 8;
constexpr int kMaxProcesses = 64;
constexpr int kMaxSharedEvents = 256;

// The work that an event stands for: the n-th record of it is over when done >= n.
struct EventCell {
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> done{0};
  // Of cells that processes share: which use of the cell this is, and whose.
  std::atomic<std::uint32_t> generation{0};
  std::atomic<int> owner{0};  // a process's place + 1; 0: free
};

struct MachineState;

// Thread safety: all methods on any thread. Ownership: of the mapping and of this process's place,
// both for as long as the process lives. A place whose process has died is swept by others.
class Machine {
 public:
  // Opens the machine of `settings`, or makes it. `settings` must outlive it.
  explicit Machine(const Settings& settings);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Takes a place for this process.
  //   CUDA_ERROR_MPS_SERVER_NOT_READY: MPS serves another user, or recovers from a fatal error.
  //   CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: no place is left.
  CUresult Join();

  // Device memory. False if less than `bytes` are free.
  bool TakeMemory(int device, std::size_t bytes);
  void GiveMemory(int device, std::size_t bytes);
  std::size_t FreeMemory(int device);

  // Whether this process has a context on `device`.
  void SetContext(int device, bool exists);

  // This process's sticky error; CUDA_SUCCESS if there is none. The first one stays.
  CUresult sticky() const;
  void FailHere(CUresult result);
  // Fails each process with a context on `device`.
  void FailDevice(int device, CUresult result);
  // A fatal error of this process's work on `device`: under MPS it is that of all its clients.
  void FailWork(int device, CUresult result);

  // Work runs on a device between a TryBegin that returned true and End. Want comes first and says
  // that something waits for its turn; Unwant takes it back.
  void Want(int device);
  void Unwant(int device);
  bool TryBegin(int device);
  void End(int device);

  // A free cell's number; -1 if there is none.
  int TakeEvent();
  void GiveEvent(int number);
  EventCell* event(int number);

 private:
  void SweepDead();
  bool IsAlive(int place) const;
  int Party(int place) const;
  int RunningOf(int device, int party) const;
  bool IsWanted(int device, int party) const;
  int NextWanting(int device, int after) const;
  CUresult CheckMps() const;

  const Settings& settings_;
  int descriptor_ = -1;
  MachineState* state_ = nullptr;
  int place_ = -1;
};

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_CUDA_MACHINE_H_
