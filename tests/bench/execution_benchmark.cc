// How long the progress thread is busy with a node's local work, alone and with reducers beside it.
//
//   execution_benchmark [--quick] [--reducers N] [--bytes N] [--gbit N]
//
// One process does what ringd does on one of two nodes for one all-reduce of float32: it asks an
// Execution for its input and gives it partial sums and results, chunk by chunk in the order of the
// ring. There is no wire: messages are bytes that lie in the cache, where UCX leaves them, so what
// is measured is the most that any wire could make of it. "ring" is the progress thread's processor
// time until the ring has all it wants of this node: no line is faster than that. "busy" is that
// time until all results are in their places, with the engine's part of what was left to copy;
// "done" the wall's. With --gbit messages come no faster than such a line brings them; in between
// the engine copies what nobody has begun, as ringd's does, and what it waits beyond that counts
// for neither. No, one, ... and N reducers (2 by default) take turns; of each the best round
// counts, because the machine's other users only ever slow a round down. GB/s are the tensors'
// bytes, read once and written once, over "done".
//
// The floor is the same bytes copied, by as many threads. A reducer needs a processor of its own:
// on a machine with fewer than reducers + 1 free ones "done" says nothing.
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "backends/block_map.h"
#include "daemon/execution/execution.h"
#include "daemon/execution/reducer_pool.h"
#include "tests/daemon/execution/ranks_by_node.h"

namespace ringd {
namespace {

constexpr std::uint32_t kNodes = 2;
constexpr std::uint32_t kChunkBytes = 128 * 1024;
// A result comes back when so many more chunks of its block have been sent.
constexpr std::uint32_t kResultsBehind = 8;

// In seconds; the best of several.
struct Times {
  double ring = std::numeric_limits<double>::infinity();
  double busy = std::numeric_limits<double>::infinity();
  double done = std::numeric_limits<double>::infinity();

  void Add(const Times& other) {
    ring = std::min(ring, other.ring);
    busy = std::min(busy, other.busy);
    done = std::min(done, other.done);
  }
};

class Stopwatch {
 public:
  double ReadProcessor() const { return Processor() - processor_; }
  double ReadWall() const { return Wall() - wall_; }

 private:
  static double Seconds(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  static double Processor() { return Seconds(CLOCK_THREAD_CPUTIME_ID); }
  static double Wall() { return Seconds(CLOCK_MONOTONIC); }

  const double processor_ = Processor();
  const double wall_ = Wall();
};

// Threads that are started later keep their freedom.
void PinToFirstProcessor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

class Benchmark {
 public:
  // `seconds_per_byte`: of the line, each way; 0: there is none.
  Benchmark(std::size_t bytes, int ranks, double seconds_per_byte)
      : bytes_(bytes),
        grid_(BlockMap::Even(bytes, kNodes, kChunkBytes)),
        seconds_per_byte_(seconds_per_byte) {
    TensorMeta meta;
    meta.op = ReduceOp::kAverage;
    meta.shape = {static_cast<std::int64_t>(bytes / sizeof(float))};
    const std::vector<const TensorMeta*> metas = {&meta};
    layout_ = std::make_shared<const BucketLayout>(
        metas, ConsecutiveRanks(std::vector<int>(kNodes, ranks)));
    for (int rank = 0; rank < ranks; ++rank) {
      tensors_.push_back(pool_.Acquire(bytes));
      std::memset(tensors_.back().data(), 0, bytes);
    }
    message_.resize(kChunkBytes);
  }

  // One row for each of the pools, which may have no threads.
  void Run(std::span<const std::unique_ptr<ReducerPool>> pools, int rounds) {
    std::vector<Times> times(pools.size());
    std::vector<Times> floors(pools.size());
    Once(*pools.front());  // touches the buffer
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < pools.size(); ++i) {
        times[i].Add(Once(*pools[i]));
        floors[i].Add(Floor(1 + static_cast<std::size_t>(pools[i]->thread_count())));
      }
    }
    for (std::size_t i = 0; i < pools.size(); ++i) {
      Print(pools[i]->thread_count(), times[i], floors[i].done);
    }
  }

 private:
  // From the operation's start until its last result is where it belongs.
  Times Once(ReducerPool& reducers) {
    std::vector<TensorBuffers> buffers;
    for (const PooledBuffer& tensor : tensors_) buffers.push_back({tensor.data(), tensor.data()});
    const Stopwatch stopwatch;
    Execution execution(
        OperationId{1, 0}, nullptr, layout_,
        BucketMemory(*layout_, static_cast<int>(tensors_.size()), std::move(buffers), -1), {},
        Clock::now());
    execution.UseBuffer(pool_.Acquire(bytes_));
    if (reducers.thread_count() > 0) {
      execution.PrepareWork(reducers,
                            {.node_count = kNodes, .self = 0, .chunk_bytes = kChunkBytes});
    }
    execution.OfferWork();
    double waited = 0;  // of the processor's time
    const auto wait_a_little = [&] {
      const double began = stopwatch.ReadProcessor();
      for (int i = 0; i < 20; ++i) sched_yield();
      waited += stopwatch.ReadProcessor() - began;
    };
    const std::uint32_t chunks = grid_.MaxChunkCount();
    double due = 0;
    for (std::uint32_t chunk = 0; chunk < chunks + kResultsBehind; ++chunk) {
      while (stopwatch.ReadWall() < due) {
        if (!execution.CopyPiece()) wait_a_little();
      }
      // A partial sum and a result have come.
      due += (chunk < kResultsBehind || chunk >= chunks ? 1 : 2) * kChunkBytes * seconds_per_byte_;
      if (chunk < grid_.ChunkCount(0)) {
        const ByteRange range = grid_.Chunk(0, chunk);
        while (execution.Input(range.begin, range.end) == nullptr) {
        }
      }
      if (chunk < grid_.ChunkCount(1)) {
        const ByteRange range = grid_.Chunk(1, chunk);
        while (execution.AddLastInput(range.begin, range.end, message_.data()) == nullptr) {
        }
      }
      if (chunk >= kResultsBehind && chunk - kResultsBehind < grid_.ChunkCount(0)) {
        const ByteRange range = grid_.Chunk(0, chunk - kResultsBehind);
        execution.OnResult(range.begin, range.end, message_.data(), false);
      }
    }
    const double ring = stopwatch.ReadProcessor() - waited;
    while (!execution.InPlace()) {
      if (!execution.CopyPiece()) wait_a_little();
    }
    return {ring, stopwatch.ReadProcessor() - waited, stopwatch.ReadWall()};
  }

  // The tensors copied into the buffer's place, in equal parts.
  Times Floor(std::size_t threads) {
    const PooledBuffer target = pool_.Acquire(bytes_);
    const std::size_t part = bytes_ / threads / 64 * 64;
    const auto copy = [&](std::size_t index) {
      for (const PooledBuffer& tensor : tensors_) {
        CopyScaled(DataType::kUint8, target.data() + index * part, tensor.data() + index * part,
                   part, {}, Streaming::kPast);
      }
    };
    const Stopwatch stopwatch;
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < threads; ++i) {
      others.emplace_back([&copy, i] {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(i % std::max(1U, std::thread::hardware_concurrency()), &set);
        pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
        copy(i);
      });
    }
    copy(0);
    for (std::thread& other : others) other.join();
    return {0, 0, stopwatch.ReadWall()};
  }

  void Print(int reducers, const Times& times, double floor) const {
    const double moved = 2.0 * static_cast<double>(bytes_) * static_cast<double>(tensors_.size());
    std::printf(
        "%zu ranks, %d reducers: ring %7.2f ms, busy %7.2f ms, done %7.2f ms %7.2f GB/s, "
        "floor %7.2f ms %4.0f%%\n",
        tensors_.size(), reducers, times.ring * 1e3, times.busy * 1e3, times.done * 1e3,
        moved / times.done / 1e9, floor * 1e3, 100 * floor / times.done);
  }

  const std::size_t bytes_;
  const BlockMap grid_;
  const double seconds_per_byte_;
  BufferPool pool_;
  std::shared_ptr<const BucketLayout> layout_;
  std::vector<PooledBuffer> tensors_;
  std::vector<std::byte> message_;
};

int Main(std::span<char*> arguments) {
  int rounds = 31;
  int reducers = 2;
  std::size_t bytes = std::size_t{64} << 20;
  double seconds_per_byte = 0;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (std::strcmp(arguments[i], "--quick") == 0) {
      rounds = 5;
    } else if (std::strcmp(arguments[i], "--reducers") == 0 && i + 1 < arguments.size()) {
      reducers = std::max(1, std::atoi(arguments[++i]));
    } else if (std::strcmp(arguments[i], "--bytes") == 0 && i + 1 < arguments.size()) {
      bytes = std::max(std::size_t{2} << 20, std::strtoul(arguments[++i], nullptr, 10) / 64 * 64);
    } else if (std::strcmp(arguments[i], "--gbit") == 0 && i + 1 < arguments.size()) {
      seconds_per_byte = 8e-9 / std::max(0.001, std::atof(arguments[++i]));
    } else {
      std::fprintf(stderr,
                   "usage: execution_benchmark [--quick] [--reducers N] [--bytes N] [--gbit N]\n");
      return 2;
    }
  }
  std::vector<std::unique_ptr<ReducerPool>> pools;
  for (int count = 0; count <= reducers; ++count) {
    pools.push_back(std::make_unique<ReducerPool>(count));
  }
  PinToFirstProcessor();
  for (const int ranks : {2, 4, 8}) Benchmark(bytes, ranks, seconds_per_byte).Run(pools, rounds);
  return 0;
}

}  // namespace
}  // namespace ringd

int main(int argc, char** argv) { return ringd::Main({argv, static_cast<std::size_t>(argc)}); }
