// What the emulated GPUs are like: RINGD_EMULATOR_CUDA_* of the environment.
#ifndef RINGD_TESTS_GPU_EMULATOR_CUDA_SETTINGS_H_
#define RINGD_TESTS_GPU_EMULATOR_CUDA_SETTINGS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ringd::emulator {

enum class Mps { kOff, kOneUser, kMultiUser };

// README.md lists the variables and what they mean.
struct Settings {
  int devices = 1;
  std::size_t memory_bytes = 0;
  std::uint64_t seed = 1;
  std::chrono::microseconds max_delay{0};
  std::chrono::microseconds slice{0};
  int driver_version = 0;
  Mps mps = Mps::kOff;
  bool peer_access = true;
  bool stream_memory_operations = true;
  int compute_major = 9;  // of the compute capability
  bool mig = false;
  // A kernel is loaded when it is first asked for, which waits for the device, and keeps other
  // threads from it.
  bool lazy_loading = false;
  // A free that waits for the device keeps other threads from it, too.
  bool frees_hold_up = false;
  // The user whom MPS sees.
  unsigned user = 0;
  // A function that cuGetProcAddress does not know; "" for none.
  std::string without;
  // A function that ends the process by SIGSEGV, and one that never returns; "" for none.
  std::string crash;
  std::string hang;
  // A library of kernels; "" for none.
  std::string kernels;
  // The file that the processes of one pretended machine share; "" for a machine of one process.
  std::string machine;
};

// Reads the environment. A value that makes no sense ends the process, with its name on stderr: a
// test that asks for what is not there must not pass.
Settings ReadSettings();

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_CUDA_SETTINGS_H_
