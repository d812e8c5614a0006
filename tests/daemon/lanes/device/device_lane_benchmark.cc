// What tensors on a GPU cost a progress thread: the processor time of handing a bucket to its
// GPU's thread and of hearing that it has ended. Run by hand; prints microseconds. The GPU is an
// emulated one, whose work is done by other threads: what a GPU's thread spends in CUDA and NCCL is
// not in it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/lanes/device/laned_rank.h"

namespace ringd {
namespace {

constexpr int kBuckets = 500;

double ThreadMicroseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One bucket after the other, each of `tensors` tensors of 16 elements.
void Measure(const emulator::Child& child, LanedRank& self, std::size_t tensors,
             std::uint64_t& number) {
  TensorMeta meta;
  meta.shape = {16};
  meta.place = TensorPlace::kDevice;
  const std::vector<TensorMeta> metas(tensors, meta);
  std::vector<std::uint64_t> places;
  for (std::size_t i = 0; i < tensors; ++i) places.push_back(i * 128);
  std::vector<double> starts;
  std::vector<double> ends;
  for (int i = 0; i < kBuckets; ++i) {
    ++number;
    double begin = ThreadMicroseconds();
    self.Start(number, metas, places);
    starts.push_back(ThreadMicroseconds() - begin);
    self.SetReady(number);
    std::vector<DeviceLane::End> ended;
    while (ended.empty()) {
      // An engine sleeps meanwhile, too.
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      begin = ThreadMicroseconds();
      ended = self.Look();
    }
    ends.push_back(ThreadMicroseconds() - begin);
    CHILD_STATUS(ended.front().status);
  }
  std::printf("%4zu tensors a bucket: start %6.2f us, end %6.2f us, in all %5.2f us a tensor\n",
              tensors, Median(starts), Median(ends),
              (Median(starts) + Median(ends)) / static_cast<double>(tensors));
}

int Run() {
  const std::string wrong =
      emulator::RunRanks(1, {{"RINGD_EMULATOR_CUDA_KERNELS", kMoveKernels}},
                         [](const emulator::Child& child, const emulator::NcclRank& rank) {
                           LanedRank self(child, rank);
                           self.lane().TakeId({IdOf(rank), true});
                           std::uint64_t number = 0;
                           for (const std::size_t tensors : {1, 4, 16, 64})
                             Measure(child, self, tensors, number);
                           std::fflush(stdout);
                         });
  if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace ringd

int main() { return ringd::Run(); }
