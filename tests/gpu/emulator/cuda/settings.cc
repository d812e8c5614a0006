#include "tests/gpu/emulator/cuda/settings.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tests/gpu/emulator/cuda/machine.h"

namespace ringd::emulator {
namespace {

constexpr char kPrefix[] = "RINGD_EMULATOR_CUDA_";

[[noreturn]] void Refuse(const std::string& name, const char* value) {
  std::fprintf(stderr, "emulated CUDA driver: %s%s=%s makes no sense\n", kPrefix, name.c_str(),
               value);
  std::abort();
}

const char* Text(const std::string& name) {
  const char* const value = std::getenv((kPrefix + name).c_str());
  return value == nullptr ? "" : value;
}

std::uint64_t Number(const std::string& name, std::uint64_t otherwise, std::uint64_t smallest,
                     std::uint64_t largest) {
  const char* const value = Text(name);
  if (*value == '\0') return otherwise;
  char* end = nullptr;
  errno = 0;
  const std::uint64_t number = std::strtoull(value, &end, 10);
  if (errno != 0 || *end != '\0' || number < smallest || number > largest) Refuse(name, value);
  return number;
}

bool Flag(const std::string& name, bool otherwise) {
  return Number(name, otherwise ? 1 : 0, 0, 1) == 1;
}

Mps ReadMps() {
  const std::string value = Text("MPS");
  if (value.empty() || value == "off") return Mps::kOff;
  if (value == "on") return Mps::kOneUser;
  if (value == "multiuser") return Mps::kMultiUser;
  Refuse("MPS", value.c_str());
}

}  // namespace

Settings ReadSettings() {
  Settings settings;
  settings.devices = static_cast<int>(Number("DEVICES", 1, 0, kMaxDevices));
  settings.memory_bytes = Number("MEMORY_MIB", 1024, 2, 1 << 20) << 20;
  settings.seed = Number("SEED", 1, 0, UINT64_MAX);
  settings.max_delay = std::chrono::microseconds(Number("MAX_DELAY_US", 100, 0, 1'000'000));
  settings.slice = std::chrono::microseconds(Number("SLICE_US", 2000, 100, 1'000'000));
  settings.driver_version = static_cast<int>(Number("DRIVER_VERSION", 13000, 1000, 99990));
  settings.mps = ReadMps();
  settings.peer_access = Flag("PEER_ACCESS", true);
  settings.stream_memory_operations = Flag("STREAM_MEMORY_OPERATIONS", true);
  settings.compute_major = static_cast<int>(Number("COMPUTE_MAJOR", 9, 7, 12));
  settings.mig = Flag("MIG", false);
  settings.lazy_loading = Flag("LAZY_LOADING", false);
  settings.frees_hold_up = Flag("FREES_HOLD_UP", false);
  settings.user = static_cast<unsigned>(Number("USER", ::geteuid(), 0, UINT32_MAX));
  settings.without = Text("WITHOUT");
  settings.crash = Text("CRASH");
  settings.hang = Text("HANG");
  settings.kernels = Text("KERNELS");
  settings.machine = Text("MACHINE");
  return settings;
}

}  // namespace ringd::emulator
