#include "tests/gpu/emulator/nccl/emulated_ranks.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ringd::emulator {
namespace {

constexpr std::size_t kIdWords = sizeof(NcclUniqueId) / sizeof(std::uint64_t);
constexpr std::chrono::milliseconds kPause{150};
// Those of the emulated driver, which is opened before a body runs.
constexpr absl::string_view kCudaPrefix = "RINGD_EMULATOR_CUDA_";

std::string OfRank(const std::string& value, int rank) {
  return absl::StrReplaceAll(value, {{"%r", absl::StrCat(rank)}});
}

}  // namespace

NcclRank::NcclRank(const Child& child, int rank, int size)
    : child_(child), rank_(rank), size_(size) {
  auto opened = NcclApi::Open(kNcclLibrary);
  child.Check(opened.ok(), "NcclApi::Open", __FILE__, __LINE__);
  nccl_ = *std::move(opened);
  child.UseDevice(rank);
}

// Rank 0's id goes to the others by way of the test.
void NcclRank::Introduce() {
  std::uint64_t words[kIdWords];
  if (rank_ == 0) {
    CheckResult(kNcclSuccess, nccl().ncclGetUniqueId(&id_), "ncclGetUniqueId", __FILE__, __LINE__);
    std::memcpy(words, id_.bytes, sizeof words);
    for (const std::uint64_t word : words) child_.Send(word);
  } else {
    for (std::uint64_t& word : words) word = child_.Receive();
    std::memcpy(id_.bytes, words, sizeof words);
  }
}

void NcclRank::CheckResult(NcclResult expected, NcclResult found, const char* text,
                           const char* file, int line) const {
  if (found == expected) return;
  const std::string what =
      absl::StrCat(text, " is ", static_cast<int>(found), " in place of ",
                   static_cast<int>(expected), ": ", nccl().ncclGetLastError(nullptr));
  child_.Check(false, what.c_str(), file, line);
}

NcclComm* NcclRank::BeginJoin() const {
  const NcclRank& rank = *this;
  NcclConfig config;
  config.blocking = 0;
  NcclComm* comm = nullptr;
  RANK_NCCL(kNcclInProgress, nccl().ncclCommInitRankConfig(&comm, size_, id_, rank_, &config));
  return comm;
}

NcclComm* NcclRank::Join(bool is_blocking) const {
  const NcclRank& rank = *this;
  NcclComm* comm = nullptr;
  if (is_blocking) {
    RANK_OK(nccl().ncclCommInitRankConfig(&comm, size_, id_, rank_, nullptr));
  } else {
    comm = BeginJoin();
    WaitReady(comm);
  }
  return comm;
}

void NcclRank::WaitReady(NcclComm* comm) const {
  const NcclRank& rank = *this;
  child_.WaitUntil([&] { return State(comm) != kNcclInProgress; }, "a communicator");
  RANK_OK(State(comm));
}

NcclResult NcclRank::State(NcclComm* comm) const {
  const NcclRank& rank = *this;
  NcclResult state = kNcclSuccess;
  RANK_OK(nccl().ncclCommGetAsyncError(comm, &state));
  return state;
}

CUdeviceptr NcclRank::Floats(const std::vector<float>& values) const {
  const std::size_t bytes = values.size() * sizeof(float);
  const CUdeviceptr memory = child_.NewMemory(bytes);
  std::memcpy(child_.emulator().alias(memory, bytes), values.data(), bytes);
  return memory;
}

std::vector<float> NcclRank::ReadFloats(CUdeviceptr memory, std::size_t count) const {
  std::vector<float> values(count);
  const std::size_t bytes = count * sizeof(float);
  const void* const alias = child_.emulator().alias(memory, bytes);
  child_.Check(alias != nullptr, "memory to read from", __FILE__, __LINE__);
  std::memcpy(values.data(), alias, bytes);
  return values;
}

NcclResult NcclRank::Sum(NcclComm* comm, CUdeviceptr memory, std::size_t count,
                         CUstream stream) const {
  return nccl().ncclAllReduce(Pointer(memory), Pointer(memory), count, kNcclFloat32, kNcclSum, comm,
                              Stream(stream));
}

void NcclRank::Meet() const {
  child_.Send(1);
  child_.Receive();
}

void NcclRank::Pause() { std::this_thread::sleep_for(kPause); }

EmulatedRanks::EmulatedRanks(int size, const Environment& environment, const RankBody& body) {
  for (int rank = 0; rank < size; ++rank) {
    Variables cuda = {{"DEVICES", absl::StrCat(size)}};
    for (const auto& [name, value] : environment) {
      absl::string_view rest = name;
      if (absl::ConsumePrefix(&rest, kCudaPrefix)) cuda[std::string(rest)] = OfRank(value, rank);
    }
    const Body in_process = [=](const Child& child) {
      for (const auto& [name, value] : environment) {
        ::setenv(name.c_str(), OfRank(value, rank).c_str(), 1);
      }
      NcclRank self(child, rank, size);
      self.Introduce();
      body(child, self);
    };
    processes_.push_back(std::make_unique<EmulatedProcess>(cuda, in_process));
  }
  for (std::size_t word = 0; word < kIdWords; ++word) {
    const std::uint64_t sent = processes_[0]->Receive();
    for (int rank = 1; rank < size; ++rank) processes_[rank]->Send(sent);
  }
}

void EmulatedRanks::Meet() {
  for (const auto& process : processes_) process->Receive();
  for (const auto& process : processes_) process->Send(1);
}

std::string EmulatedRanks::Join() {
  std::string wrong;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const std::string one = processes_[rank]->Join();
    if (!one.empty()) absl::StrAppend(&wrong, "rank ", rank, ": ", one, "\n");
  }
  return wrong;
}

std::string RunRanks(int size, const Environment& environment, const RankBody& body) {
  return EmulatedRanks(size, environment, body).Join();
}

}  // namespace ringd::emulator
