#include "tests/gpu/emulator/nccl/group.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/emulator/nccl/last_error.h"

namespace ringd::emulator {
namespace {

struct Entry {
  std::shared_ptr<Communicator> communicator;
  Group::Work work;
  Job job;
};

struct State {
  int depth = 0;
  NcclResult error = kNcclSuccess;
  std::vector<Entry> entries;
};

State& OfThisThread() {
  thread_local State state;
  return state;
}

NcclResult RunInTurn(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) {
    if (const NcclResult result = job(); result != kNcclSuccess) return result;
  }
  return kNcclSuccess;
}

// Of each communicator one job: a call must not find it busy with another one of its own group.
std::vector<std::pair<std::shared_ptr<Communicator>, std::vector<Job>>> ByCommunicator(
    const std::vector<Entry>& entries) {
  std::vector<std::pair<std::shared_ptr<Communicator>, std::vector<Job>>> sorted;
  for (const Entry& entry : entries) {
    auto found = std::find_if(sorted.begin(), sorted.end(), [&entry](const auto& one) {
      return one.first == entry.communicator;
    });
    if (found == sorted.end()) found = sorted.insert(sorted.end(), {entry.communicator, {}});
    found->second.push_back(entry.job);
  }
  return sorted;
}

NcclResult RunBlocking(const std::vector<Entry>& entries) {
  std::vector<std::thread> threads;
  std::vector<NcclResult> results(entries.size(), kNcclSuccess);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].work != Group::Work::kMeeting) continue;
    threads.emplace_back([&, i] { results[i] = entries[i].job(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].work == Group::Work::kLaunch) results[i] = entries[i].job();
  }
  for (const NcclResult result : results) {
    if (result != kNcclSuccess) return result;
  }
  return kNcclSuccess;
}

NcclResult RunAll(const std::vector<Entry>& entries) {
  if (entries.empty()) return kNcclSuccess;
  const bool is_blocking = entries.front().communicator->is_blocking();
  for (const Entry& entry : entries) {
    if (entry.communicator->is_blocking() != is_blocking) {
      return Failed(kNcclInvalidArgument,
                    "blocking and non-blocking communicators are in the same group");
    }
  }
  if (is_blocking) return RunBlocking(entries);
  for (const auto& [communicator, jobs] : ByCommunicator(entries)) {
    communicator->Start([jobs = jobs] { return RunInTurn(jobs); });
  }
  return kNcclInProgress;
}

}  // namespace

void Group::Begin() { ++OfThisThread().depth; }

NcclResult Group::End() {
  State& state = OfThisThread();
  if (state.depth == 0) {
    return Failed(kNcclInvalidUsage, "ncclGroupEnd without an ncclGroupStart");
  }
  if (--state.depth > 0) return kNcclSuccess;
  const std::vector<Entry> entries = std::exchange(state.entries, {});
  const NcclResult error = std::exchange(state.error, kNcclSuccess);
  return error == kNcclSuccess ? RunAll(entries) : error;
}

NcclResult Group::Submit(const std::shared_ptr<Communicator>& communicator, Work work, Job job) {
  State& state = OfThisThread();
  if (state.depth == 0) return communicator->Start(job);
  state.entries.push_back({communicator, work, std::move(job)});
  return kNcclSuccess;
}

NcclResult Group::Note(NcclResult result) {
  State& state = OfThisThread();
  const bool is_error = result != kNcclSuccess && result != kNcclInProgress;
  if (state.depth > 0 && is_error && state.error == kNcclSuccess) state.error = result;
  return result;
}

}  // namespace ringd::emulator
