// How fast the reduction kernels are, beside this machine's memory.
//
//   kernels_benchmark [--quick] [--threads N] [--only TEXT]    (TEXT: a part of the kernels' names)
//
// Each line gives bytes moved per second (all that is read and written) of one kernel, and its
// share of the floor: what the same mix of reading and writing costs without any arithmetic,
// measured in the same run. Pinned threads take equal parts of the buffers, as ringd's reducers and
// helping trainers do; the rounds of all kernels are interleaved, and the best of them counts,
// because the machine's other users only ever slow a round down. A round's time is the processor
// time of its slowest thread: time in which another process had the core does not count.
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/reduce/reduce.h"

namespace ringd {
namespace {

constexpr std::size_t kMaxRanks = 4;
constexpr std::size_t kAlignment = 4096;

// Touched memory on huge pages where the kernel gives them.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    void* address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      std::perror("mmap");
      std::exit(1);
    }
    madvise(address, bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::uint8_t*>(address);
    std::memset(data_, 0, bytes);
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::uint8_t* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::uint8_t* data_;
};

// Runs one function on several pinned threads at once and times it.
class Team {
 public:
  explicit Team(int size) : size_(size), seconds_(static_cast<std::size_t>(size)) {
    Pin(0);
    for (int i = 1; i < size; ++i) threads_.emplace_back([this, i] { Work(i); });
  }
  ~Team() {
    stop_ = true;
    round_.fetch_add(1);
    for (std::thread& thread : threads_) thread.join();
  }

  int size() const { return size_; }

  // Runs work(index) on each; the largest processor time of any, in seconds.
  double Time(const std::function<void(int)>& work) {
    work_ = &work;
    done_ = 0;
    round_.fetch_add(1);
    RunOne(0);
    while (done_.load() != size_) {
    }
    return *std::max_element(seconds_.begin(), seconds_.end());
  }

 private:
  static void Pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  }

  static double ProcessorSeconds() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  void RunOne(int index) {
    const double start = ProcessorSeconds();
    (*work_)(index);
    seconds_[static_cast<std::size_t>(index)] = ProcessorSeconds() - start;
    done_.fetch_add(1);
  }

  void Work(int index) {
    Pin(index);
    for (std::uint64_t seen = 0;; ++seen) {
      while (round_.load() == seen) {
      }
      if (stop_) return;
      RunOne(index);
    }
  }

  const int size_;
  std::vector<double> seconds_;
  std::vector<std::thread> threads_;
  std::atomic<std::uint64_t> round_{0};
  std::atomic<int> done_{0};
  std::atomic<bool> stop_{false};
  const std::function<void(int)>* work_ = nullptr;
};

struct Row {
  std::string name;
  std::size_t moved_bytes;  // read and written per round
  std::size_t elements;     // 0 for plain memory
  std::string floor;        // the row that this one can't beat
  std::function<void(std::size_t begin, std::size_t bytes)> work;  // on a part of each buffer
  double best_seconds = 1e9;
};

// Reads `read` buffers and writes `written` of them, 8 bytes at a time by the compiler's own
// vectors.
template <std::size_t kBuffers>
void Exchange(std::uint8_t* const* buffers, std::size_t begin, std::size_t bytes) {
  using Words = std::uint64_t __attribute__((vector_size(64), aligned(64), may_alias));
  for (std::size_t i = begin; i < begin + bytes; i += sizeof(Words)) {
    Words words[kBuffers];
    for (std::size_t b = 0; b < kBuffers; ++b) words[b] = *reinterpret_cast<Words*>(buffers[b] + i);
    for (std::size_t b = 0; b < kBuffers; ++b)
      *reinterpret_cast<Words*>(buffers[b] + i) = words[kBuffers - 1 - b];
  }
}

class Benchmark {
 public:
  Benchmark(Team& team, std::size_t bytes, int rounds, std::string only)
      : team_(team), bytes_(bytes), rounds_(rounds), only_(std::move(only)) {
    for (std::size_t i = 0; i < kMaxRanks + 1; ++i) {
      // Each buffer begins elsewhere within a page: equal page offsets would make loads wait for
      // stores.
      memories_.push_back(std::make_unique<Memory>(bytes + kMaxRanks * kAlignment));
      buffers_.push_back(memories_.back()->data() + i * kAlignment);
    }
  }

  void Run() {
    AddMemoryRows();
    const std::size_t memory_rows = rows_.size();
    for (int t = 0; t < kDataTypeCount; ++t) AddTypeRows(static_cast<DataType>(t));
    rows_.erase(std::remove_if(
                    rows_.begin() + static_cast<std::ptrdiff_t>(memory_rows), rows_.end(),
                    [this](const Row& row) { return row.name.find(only_) == std::string::npos; }),
                rows_.end());
    const std::size_t part = bytes_ / static_cast<std::size_t>(team_.size());
    for (int round = 0; round < rounds_; ++round) {
      for (Row& row : rows_) {
        // Small buffers are repeated, to be long against the clock.
        const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{4} << 20) / bytes_);
        const double seconds = team_.Time([&](int index) {
          for (std::size_t r = 0; r < repeats; ++r)
            row.work(static_cast<std::size_t>(index) * part, part);
        });
        row.best_seconds = std::min(row.best_seconds, seconds / static_cast<double>(repeats));
      }
    }
    Print();
  }

 private:
  static std::string Label(DataType type) {
    const auto name = Name(type);
    return std::string(name.data(), name.size());
  }

  void AddMemoryRows() {
    rows_.push_back({"memcpy", 2 * bytes_, 0, "", [this](std::size_t begin, std::size_t n) {
                       std::memcpy(buffers_[1] + begin, buffers_[0] + begin, n);
                     }});
    rows_.push_back(
        {"CopyScaled 1.0", 2 * bytes_, 0, "memcpy", [this](std::size_t begin, std::size_t n) {
           CopyScaled(DataType::kUint8, buffers_[1] + begin, buffers_[0] + begin, n, {},
                      streaming());
         }});
    rows_.push_back({"exchange 2", 4 * bytes_, 0, "", [this](std::size_t begin, std::size_t n) {
                       Exchange<2>(buffers_.data(), begin, n);
                     }});
    rows_.push_back({"exchange 4", 8 * bytes_, 0, "", [this](std::size_t begin, std::size_t n) {
                       Exchange<4>(buffers_.data(), begin, n);
                     }});
  }

  void AddTypeRows(DataType type) {
    const std::size_t size = SizeOf(type);
    const std::size_t elements = bytes_ / size;
    const std::string label = Label(type);
    rows_.push_back({label + " ReduceInto sum", 3 * bytes_, elements, "memcpy",
                     [this, type, size](std::size_t begin, std::size_t n) {
                       ReduceInto(type, ReduceOp::kSum, buffers_[1] + begin, buffers_[0] + begin,
                                  n / size);
                     }});
    AddAllReduce(label + " 2 to 2 sum", type, ReduceOp::kSum, 2, {});
    AddAllReduce(label + " 2 to 2 average", type, ReduceOp::kAverage, 2, Scaling::AverageOf(2));
    AddAllReduce(label + " 2 to 2 max", type, ReduceOp::kMax, 2, {});
    AddAllReduce(label + " 2 to 2 product", type, ReduceOp::kProduct, 2, {});
    AddAllReduce(label + " 4 to 4 sum", type, ReduceOp::kSum, 4, {});
    rows_.push_back({label + " 2 to 1 sum", 3 * bytes_, elements, "memcpy",
                     [this, type, size](std::size_t begin, std::size_t n) {
                       const void* const sources[] = {buffers_[0] + begin, buffers_[1] + begin};
                       ReduceMany(type, ReduceOp::kSum, sources, buffers_[4] + begin, n / size,
                                  streaming());
                     }});
    // What a node with one rank makes of another's message.
    for (const double prescale : {1.0, 0.5}) {
      rows_.push_back({label + " partial, prescale " + (prescale == 1.0 ? "1" : "1/2"), 3 * bytes_,
                       elements, "memcpy",
                       [this, type, size, prescale](std::size_t begin, std::size_t n) {
                         const void* const sources[] = {buffers_[0] + begin};
                         void* const destinations[] = {buffers_[4] + begin};
                         CombineContributions(type, ReduceOp::kSum, prescale, buffers_[1] + begin,
                                              sources, destinations, n / size, {}, streaming());
                       }});
    }
    rows_.push_back({label + " CopyScaled 1/3", 2 * bytes_, elements, "memcpy",
                     [this, type, size](std::size_t begin, std::size_t n) {
                       CopyScaled(type, buffers_[4] + begin, buffers_[0] + begin, n / size,
                                  Scaling::AverageOf(3), streaming());
                     }});
  }

  void AddAllReduce(const std::string& name, DataType type, ReduceOp op, std::size_t ranks,
                    Scaling scaling) {
    const std::size_t size = SizeOf(type);
    rows_.push_back({name, 2 * ranks * bytes_, bytes_ / size,
                     ranks == 2 ? "exchange 2" : "exchange 4",
                     [this, type, op, ranks, scaling, size](std::size_t begin, std::size_t n) {
                       const void* sources[kMaxRanks];
                       void* destinations[kMaxRanks];
                       for (std::size_t i = 0; i < ranks; ++i)
                         sources[i] = destinations[i] = buffers_[i] + begin;
                       ReduceManyToMany(type, op, {sources, ranks}, {destinations, ranks}, n / size,
                                        scaling, streaming());
                     }});
  }

  // As an engine chooses for pieces of a tensor of this size.
  Streaming streaming() const {
    return bytes_ > (std::size_t{8} << 20) ? Streaming::kPast : Streaming::kCached;
  }

  void Print() const {
    std::printf("\n%zu KiB per rank, %d thread%s, best of %d\n", bytes_ >> 10, team_.size(),
                team_.size() == 1 ? "" : "s", rounds_);
    std::printf("%-34s %10s %10s %14s %8s\n", "kernel", "us", "GB/s", "Melements/s", "floor");
    for (const Row& row : rows_) {
      const double rate = static_cast<double>(row.moved_bytes) / row.best_seconds / 1e9;
      std::printf("%-34s %10.1f %10.2f %14.0f", row.name.c_str(), row.best_seconds * 1e6, rate,
                  static_cast<double>(row.elements) / row.best_seconds / 1e6);
      const auto floor = std::find_if(rows_.begin(), rows_.end(),
                                      [&](const Row& r) { return r.name == row.floor; });
      if (floor != rows_.end()) {
        const double floor_rate =
            static_cast<double>(floor->moved_bytes) / floor->best_seconds / 1e9;
        std::printf(" %7.0f%%", 100 * rate / floor_rate);
      }
      std::printf("\n");
    }
  }

  Team& team_;
  const std::size_t bytes_;
  const int rounds_;
  const std::string only_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::vector<std::uint8_t*> buffers_;
  std::vector<Row> rows_;
};

int Main(int argc, char** argv) {
  bool quick = false;
  std::string only;
  int threads = static_cast<int>(std::min(2u, std::thread::hardware_concurrency()));
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      threads = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      only = argv[++i];
    } else {
      std::fprintf(stderr, "usage: kernels_benchmark [--quick] [--threads N] [--only TEXT]\n");
      return 2;
    }
  }
  for (int size = 1; size <= threads; size *= 2) {
    Team team(size);
    for (const std::size_t bytes :
         {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{64} << 20}) {
      Benchmark(team, bytes, quick ? 2 : 7, only).Run();
    }
  }
  return 0;
}

}  // namespace
}  // namespace ringd

int main(int argc, char** argv) { return ringd::Main(argc, argv); }
