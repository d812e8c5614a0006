// What the emulated NCCL is like: RINGD_EMULATOR_NCCL_* of the environment.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_SETTINGS_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_SETTINGS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ringd::emulator {

// A mishap on demand.
struct Fault {
  enum class Kind { kHang, kError, kSlow };
  static constexpr std::uint64_t kInit = 0;
  static constexpr std::uint64_t kEvery = UINT64_MAX;

  Kind kind = Kind::kHang;
  int rank = 0;
  // Which collective of the communicator, counted from 1; kInit: when it is made.
  std::uint64_t operation = 0;
  // kError: an NcclResult.  kSlow: microseconds.
  int value = 0;
};

// README.md lists the variables and what they mean.
struct NcclSettings {
  int version = 0;
  std::uint64_t seed = 1;
  std::chrono::microseconds max_delay{0};
  std::vector<Fault> faults;
  std::string hang;
};

// Read once in a process. A value that makes no sense ends the process, with its name on stderr: a
// test that asks for what is not there must not pass.
const NcclSettings& Settings();

// The fault that meets `rank` at `operation`; null if none does.
const Fault* FindFault(int rank, std::uint64_t operation);

// Where a function of that name begins that may be asked to hang: never returns if it has been.
void HangIfAsked(const char* function);

// Before a non-blocking call does its work: a time drawn from the seed.
std::chrono::microseconds DrawDelay();

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_SETTINGS_H_
