#include "tests/gpu/emulator/nccl/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>
#include <sstream>
#include <string>

#include "proto/base/mutex.h"

namespace ringd::emulator {
namespace {

constexpr char kPrefix[] = "RINGD_EMULATOR_NCCL_";

[[noreturn]] void Refuse(const std::string& name, const std::string& value) {
  std::fprintf(stderr, "emulated NCCL: %s%s=%s makes no sense\n", kPrefix, name.c_str(),
               value.c_str());
  std::abort();
}

std::string Text(const std::string& name) {
  const char* const value = std::getenv((kPrefix + name).c_str());
  return value == nullptr ? "" : value;
}

bool Parse(const std::string& text, std::uint64_t* number) {
  char* end = nullptr;
  errno = 0;
  *number = std::strtoull(text.c_str(), &end, 10);
  return !text.empty() && errno == 0 && *end == '\0';
}

std::uint64_t Number(const std::string& name, std::uint64_t otherwise, std::uint64_t largest) {
  const std::string text = Text(name);
  std::uint64_t number = otherwise;
  if (!text.empty() && (!Parse(text, &number) || number > largest)) Refuse(name, text);
  return number;
}

// "hang@1:3", "error@1:init=3", "slow@0:*=2000": kind, rank, operation, value.
bool ParseFault(const std::string& text, Fault* fault) {
  const std::size_t at = text.find('@');
  const std::size_t colon = text.find(':', at);
  const std::size_t equals = text.find('=', colon);
  if (at == std::string::npos || colon == std::string::npos) return false;
  const std::string kind = text.substr(0, at);
  const std::string operation = text.substr(colon + 1, equals - colon - 1);
  std::uint64_t rank = 0;
  std::uint64_t value = 0;
  if (!Parse(text.substr(at + 1, colon - at - 1), &rank)) return false;
  if (kind == "hang") {
    if (equals != std::string::npos) return false;
  } else if (equals == std::string::npos || !Parse(text.substr(equals + 1), &value)) {
    return false;
  }
  if (kind == "error") fault->kind = Fault::Kind::kError;
  if (kind == "slow") fault->kind = Fault::Kind::kSlow;
  if (operation == "init") {
    fault->operation = Fault::kInit;
  } else if (operation == "*") {
    fault->operation = Fault::kEvery;
  } else if (!Parse(operation, &fault->operation) || fault->operation == 0) {
    return false;
  }
  fault->rank = static_cast<int>(rank);
  fault->value = static_cast<int>(value);
  return kind == "hang" || kind == "error" || kind == "slow";
}

NcclSettings Read() {
  NcclSettings settings;
  settings.version = static_cast<int>(Number("VERSION", 22907, 99999));
  settings.seed = Number("SEED", 1, UINT64_MAX);
  settings.max_delay = std::chrono::microseconds(Number("MAX_DELAY_US", 1000, 1'000'000));
  std::istringstream faults(Text("FAULTS"));
  for (std::string text; std::getline(faults, text, ';');) {
    Fault fault;
    if (!ParseFault(text, &fault)) Refuse("FAULTS", text);
    settings.faults.push_back(fault);
  }
  settings.hang = Text("HANG");
  constexpr const char* kMayHang[] = {"", "ncclCommInitRankConfig", "ncclAllReduce",
                                      "ncclCommAbort"};
  if (std::find(std::begin(kMayHang), std::end(kMayHang), settings.hang) == std::end(kMayHang)) {
    Refuse("HANG", settings.hang);
  }
  return settings;
}

}  // namespace

const NcclSettings& Settings() {
  static const NcclSettings* const settings = new NcclSettings(Read());
  return *settings;
}

const Fault* FindFault(int rank, std::uint64_t operation) {
  for (const Fault& fault : Settings().faults) {
    const bool is_every = fault.operation == Fault::kEvery && operation != Fault::kInit;
    if (fault.rank == rank && (is_every || fault.operation == operation)) return &fault;
  }
  return nullptr;
}

void HangIfAsked(const char* function) {
  while (Settings().hang == function) ::pause();
}

std::chrono::microseconds DrawDelay() {
  static Mutex* const mutex = new Mutex;
  static auto* const random = new std::mt19937_64(Settings().seed);
  const MutexLock lock(*mutex);
  const auto range = static_cast<std::uint64_t>(Settings().max_delay.count()) + 1;
  return std::chrono::microseconds((*random)() % range);
}

}  // namespace ringd::emulator
