// All-reduces on behalf of the benchmark, through libringd's C interface.
//
// Started once per rank, with the rank's place in the environment as every launcher gives it, as
// `ringd_driver CONTROL_FOLDER`; control.h describes the work lines. Tensors lie in ringd's arena
// or in ordinary memory, as the work line says.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/ringd.h"
#include "tests/bench/drivers/control.h"

namespace ringd {
namespace {

constexpr std::size_t kAlignment = 4096;

// A failure of the library ends the process: the harness reports the last lines of its output.
void Require(ringd_status status, const char* what) {
  if (status == RINGD_OK) return;
  std::fprintf(stderr, "ringd_driver: %s: %s: %s\n", what, ringd_status_name(status),
               ringd_last_error());
  std::exit(1);
}

std::int32_t DataTypeOf(const char* name) {
  if (std::strcmp(name, "f32") == 0) return RINGD_FLOAT32;
  if (std::strcmp(name, "f16") == 0) return RINGD_FLOAT16;
  if (std::strcmp(name, "bf16") == 0) return RINGD_BFLOAT16;
  if (std::strcmp(name, "f8e4m3") == 0) return RINGD_FLOAT8_E4M3;
  if (std::strcmp(name, "f8e5m2") == 0) return RINGD_FLOAT8_E5M2;
  return -1;
}

// Memory for one tensor, zeroed and with every page touched: a first touch must not be timed.
//
// Ownership: owns the memory, in the arena or the heap.
class TensorMemory {
 public:
  TensorMemory(ringd_context* context, std::size_t bytes, bool in_arena)
      : context_(in_arena ? context : nullptr), bytes_(bytes) {
    if (in_arena) {
      Require(ringd_arena_alloc(context, bytes, &address_), "arena allocation");
    } else if (posix_memalign(&address_, kAlignment, bytes < kAlignment ? kAlignment : bytes) !=
               0) {
      std::fprintf(stderr, "ringd_driver: cannot allocate %zu bytes\n", bytes);
      std::exit(1);
    }
    Clear();
  }
  ~TensorMemory() {
    if (context_ != nullptr) {
      ringd_arena_free(context_, address_);
    } else {
      std::free(address_);
    }
  }
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;

  void* address() const { return address_; }
  void Clear() { std::memset(address_, 0, bytes_); }

 private:
  ringd_context* const context_;  // null: heap
  const std::size_t bytes_;
  void* address_ = nullptr;
};

// Consecutive tensors that the caller packs into one.
struct Bucket {
  std::size_t first = 0;
  std::size_t end = 0;
  std::size_t elements = 0;
  std::unique_ptr<TensorMemory> memory;
  ringd_registration registration = 0;
};

// One rank of the benchmark's job.
//
// Thread safety: one thread. Ownership: owns its context and all tensors of the current work.
class Driver {
 public:
  explicit Driver(ringd_context* context) : context_(context) {
    place_.struct_size = sizeof(place_);
    Require(ringd_get_place(context_, &place_), "place");
    barrier_ = RegisterOne("bench/barrier", RINGD_BARRIER, RINGD_FLOAT32, 0);
    verdict_ = RegisterOne("bench/verdict", RINGD_ALLREDUCE, RINGD_FLOAT32, 1);
  }

  std::int32_t rank() const { return place_.rank; }

  void Serve(const Work& work, FILE* out) {
    if (work.tensor_count == 0 || DataTypeOf(work.dtype) < 0) {
      if (rank() == 0)
        ReportProblem(out, work.id, "unsupported", "no such data type, or an empty list");
      return;
    }
    Prepare(work);
    if (work.verify != 0 && work.mode != kModeNull && !SumsAreRight(work)) {
      if (rank() == 0) ReportProblem(out, work.id, "error", "wrong sum");
      return;
    }
    std::vector<double> seconds;
    for (int sample = -work.warmup; sample < work.samples; ++sample) {
      Barrier();
      AwaitCommonStart(&work);
      const double start = NowSeconds();
      for (int k = 0; k < work.inner; ++k) RunOnce(work);
      if (sample >= 0) seconds.push_back((NowSeconds() - start) / work.inner);
    }
    if (rank() == 0) ReportSeconds(out, work.id, seconds.data(), static_cast<int>(seconds.size()));
  }

 private:
  ringd_registration RegisterOne(const std::string& name, std::int32_t kind, std::int32_t data_type,
                                 std::size_t count) {
    const auto extent = static_cast<std::int64_t>(count);
    ringd_tensor tensor = Describe(name, kind, data_type, extent);
    ringd_registration registration = 0;
    Require(ringd_register(context_, &tensor, 1, &registration), "registration");
    return registration;
  }

  static ringd_tensor Describe(const std::string& name, std::int32_t kind, std::int32_t data_type,
                               const std::int64_t& extent) {
    ringd_tensor tensor = {};
    tensor.struct_size = sizeof(tensor);
    tensor.name = name.c_str();
    tensor.kind = kind;
    tensor.data_type = data_type;
    tensor.op = RINGD_SUM;
    tensor.dimensions = kind == RINGD_BARRIER ? 0 : 1;
    tensor.shape = kind == RINGD_BARRIER ? nullptr : &extent;
    return tensor;
  }

  // Allocates and registers the tensors of `work`, unless the last work had the same.
  void Prepare(const Work& work) {
    const bool wants_buckets = work.mode == kModeBucket;
    const std::string key = std::string(work.counts_path) + " " + work.dtype +
                            (work.in_arena != 0 ? " arena" : "") +
                            (wants_buckets ? " buckets" : "");
    if (key == key_) return;
    key_ = key;
    tensors_.clear();
    buckets_.clear();
    width_ = ElementBytes(work.dtype);
    for (std::size_t i = 0; i < work.tensor_count; ++i) {
      // Packed by the caller: then the buckets are what ringd sees.
      const bool in_arena = work.in_arena != 0 && !wants_buckets;
      tensors_.push_back(
          std::make_unique<TensorMemory>(context_, work.counts[i] * width_, in_arena));
    }
    if (wants_buckets) {
      PlanBuckets(work);
    } else {
      RegisterTensors(work);
    }
    operations_.assign(work.tensor_count, 0);
  }

  void RegisterTensors(const Work& work) {
    std::vector<std::string> names;
    std::vector<std::int64_t> extents(work.counts, work.counts + work.tensor_count);
    for (std::size_t i = 0; i < work.tensor_count; ++i) names.push_back(NameOf(work, "tensor", i));
    std::vector<ringd_tensor> descriptions;
    for (std::size_t i = 0; i < work.tensor_count; ++i) {
      descriptions.push_back(
          Describe(names[i], RINGD_ALLREDUCE, DataTypeOf(work.dtype), extents[i]));
    }
    registrations_.assign(work.tensor_count, 0);
    Require(
        ringd_register(context_, descriptions.data(), descriptions.size(), registrations_.data()),
        "registration");
  }

  static std::string NameOf(const Work& work, const char* kind, std::size_t index) {
    const char* slash = std::strrchr(work.counts_path, '/');
    const char* list = slash == nullptr ? work.counts_path : slash + 1;
    return std::string("bench/") + list + "/" + work.dtype + "/" + kind + "/" +
           std::to_string(index);
  }

  void PlanBuckets(const Work& work) {
    for (std::size_t i = 0; i < work.tensor_count; ++i) {
      if (buckets_.empty() ||
          (buckets_.back().elements + work.counts[i]) * width_ > work.bucket_bytes) {
        buckets_.emplace_back();
        buckets_.back().first = i;
      }
      buckets_.back().elements += work.counts[i];
      buckets_.back().end = i + 1;
    }
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      Bucket& bucket = buckets_[i];
      bucket.memory =
          std::make_unique<TensorMemory>(context_, bucket.elements * width_, work.in_arena != 0);
      bucket.registration = RegisterOne(NameOf(work, "bucket", i), RINGD_ALLREDUCE,
                                        DataTypeOf(work.dtype), bucket.elements);
    }
  }

  // Sleeps until `start + ready[index]`: the gradients of a model that is computed elsewhere.
  static void AwaitReady(const Work& work, double start, std::size_t index) {
    if (work.ready != nullptr) SleepUntil(start + work.ready[index]);
  }

  ringd_operation Submit(ringd_registration registration, void* memory) {
    ringd_operation operation = 0;
    Require(ringd_submit(context_, registration, memory, memory, &operation), "submission");
    return operation;
  }

  // Submits, and waits at once: what MPI_Allreduce is.
  void Reduce(ringd_registration registration, void* memory) {
    ringd_operation operation = 0;
    Require(ringd_submit_awaited(context_, registration, memory, memory, &operation), "submission");
    Wait(operation);
  }

  void Wait(ringd_operation operation) { Require(ringd_wait(context_, operation, -1), "wait"); }

  void Barrier() { Reduce(barrier_, nullptr); }

  void RunOnce(const Work& work) {
    const double start = work.ready == nullptr ? 0 : NowSeconds();
    switch (work.mode) {
      case kModeNull:
        Require(ringd_ping(context_, -1), "ping");
        return;
      case kModeBlocking:
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
          AwaitReady(work, start, i);
          Reduce(registrations_[i], tensors_[i]->address());
        }
        return;
      case kModeAsync:
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
          AwaitReady(work, start, i);
          operations_[i] = Submit(registrations_[i], tensors_[i]->address());
        }
        Require(ringd_wait_all(context_, operations_.data(), operations_.size(), -1), "wait");
        return;
      case kModeBucket:
        RunBuckets(work, start);
        return;
    }
  }

  void RunBuckets(const Work& work, double start) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const Bucket& bucket = buckets_[b];
      AwaitReady(work, start, bucket.end - 1);
      char* at = static_cast<char*>(bucket.memory->address());
      for (std::size_t i = bucket.first; i < bucket.end; ++i) {
        std::memcpy(at, tensors_[i]->address(), work.counts[i] * width_);
        at += work.counts[i] * width_;
      }
      operations_[b] = Submit(bucket.registration, bucket.memory->address());
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const Bucket& bucket = buckets_[b];
      Wait(operations_[b]);
      const char* at = static_cast<const char*>(bucket.memory->address());
      for (std::size_t i = bucket.first; i < bucket.end; ++i) {
        std::memcpy(tensors_[i]->address(), at, work.counts[i] * width_);
        at += work.counts[i] * width_;
      }
    }
  }

  // One checked call; leaves zeros behind, so that repeated sums stay finite.
  bool SumsAreRight(const Work& work) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      FillForCheck(tensors_[i]->address(), work.dtype, place_.rank, work.counts[i]);
    }
    RunOnce(work);
    float wrong = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (HoldsSum(tensors_[i]->address(), work.dtype, place_.size, work.counts[i]) == 0) wrong = 1;
      tensors_[i]->Clear();
    }
    Reduce(verdict_, &wrong);
    return wrong == 0;
  }

  ringd_context* const context_;
  ringd_place place_ = {};
  ringd_registration barrier_ = 0;
  ringd_registration verdict_ = 0;
  std::string key_;
  std::size_t width_ = 0;
  std::vector<std::unique_ptr<TensorMemory>> tensors_;
  std::vector<Bucket> buckets_;
  std::vector<ringd_registration> registrations_;
  std::vector<ringd_operation> operations_;
};

int Main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CONTROL_FOLDER\n", argv[0]);
    return 2;
  }
  if (RankFromEnvironment() >= 0) PinToCore(RankFromEnvironment());
  ringd_context* context = nullptr;
  Require(ringd_open(nullptr, &context), "attach");
  {
    Driver driver(context);
    FILE* in = OpenInput(argv[1], driver.rank());
    FILE* out = OpenOutput(argv[1]);
    if (in == nullptr || out == nullptr) return 1;
    if (driver.rank() == 0) ReportReady(out, ringd_version());
    Work work;
    while (ReadWork(in, &work) != 0) {
      driver.Serve(work, out);
      ReleaseWork(&work);
    }
    std::fclose(in);
    std::fclose(out);
  }
  ringd_close(context);
  return 0;
}

}  // namespace
}  // namespace ringd

int main(int argc, char** argv) { return ringd::Main(argc, argv); }
