// The file of an emulated machine, for tests of several processes.
#ifndef RINGD_TESTS_GPU_EMULATOR_CUDA_MACHINE_FILE_H_
#define RINGD_TESTS_GPU_EMULATOR_CUDA_MACHINE_FILE_H_

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd::emulator {

// Ownership: the file goes with it.
class MachineFile {
 public:
  MachineFile() { ::close(::mkstemp(path_)); }
  ~MachineFile() { ::unlink(path_); }
  MachineFile(const MachineFile&) = delete;
  MachineFile& operator=(const MachineFile&) = delete;

  std::string path() const { return path_; }
  // For processes that are on it.
  Variables With(Variables settings = {}) const {
    settings["MACHINE"] = path_;
    return settings;
  }

 private:
  char path_[32] = "/tmp/ringd-machine-XXXXXX";
};

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_CUDA_MACHINE_FILE_H_
