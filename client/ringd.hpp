// libringd in C++: the C interface of ringd.h with lifetimes, spans and exceptions.
//
//   ringd::Context context;                           // a place in the job, from the environment
//   auto gradient = context.Allocate<float>(1000);    // in the arena: reduced without a copy
//   const ringd::Registration registration =
//       context.Register(ringd::AllReduce<float>("layer1.weight", {1000},
//                                                ringd::Reduction::kAverage));
//   ringd::Operation operation = context.Submit(registration, gradient.span());
//   ...                                               // the backward pass goes on
//   operation.Wait();                                 // gradient holds the average
//
// Everything is inline over the C interface, whose rules hold: what may be called from where, who
// owns the buffers, which functions block. A program compiled against this header needs no more of
// the library than the functions of ringd.h. C++20.
//
// Errors: every failure is thrown as ringd::Error, except by destructors.
#ifndef RINGD_CLIENT_RINGD_HPP_
#define RINGD_CLIENT_RINGD_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/ringd.h"

namespace ringd {

// A failed call: its code, and the library's words as what().
class Error : public std::runtime_error {
 public:
  Error(ringd_status code, const std::string& text) : std::runtime_error(text), code_(code) {}

  ringd_status code() const noexcept { return code_; }
  // "RINGD_ABORTED" and so on.
  const char* code_name() const noexcept { return ringd_status_name(code_); }

 private:
  ringd_status code_;
};

// Throws Error unless `status` is RINGD_OK. Call right after the failed call, on the same thread.
inline void ThrowIfFailed(ringd_status status) {
  if (status != RINGD_OK) throw Error(status, ringd_last_error());
}

enum class ElementType : std::int32_t {
  kUint8 = RINGD_UINT8,
  kInt8 = RINGD_INT8,
  kUint16 = RINGD_UINT16,
  kInt16 = RINGD_INT16,
  kUint32 = RINGD_UINT32,
  kInt32 = RINGD_INT32,
  kUint64 = RINGD_UINT64,
  kInt64 = RINGD_INT64,
  kFloat16 = RINGD_FLOAT16,
  kBfloat16 = RINGD_BFLOAT16,
  kFloat32 = RINGD_FLOAT32,
  kFloat64 = RINGD_FLOAT64,
  kBool = RINGD_BOOL,
  kFloat8E4M3 = RINGD_FLOAT8_E4M3,
  kFloat8E5M2 = RINGD_FLOAT8_E5M2,
};

// ringd.h says what they mean for each type.
enum class Reduction : std::int32_t {
  kSum = RINGD_SUM,
  kAverage = RINGD_AVERAGE,
  kMin = RINGD_MIN,
  kMax = RINGD_MAX,
  kProduct = RINGD_PRODUCT,
};

// The ElementType of a C++ type that has one. The narrow floating-point types have none in C++20:
// name their ElementType instead.
template <typename T>
constexpr ElementType ElementTypeOf() noexcept {
  if constexpr (std::is_same_v<T, bool>) {
    return ElementType::kBool;
  } else if constexpr (std::is_same_v<T, float>) {
    return ElementType::kFloat32;
  } else if constexpr (std::is_same_v<T, double>) {
    return ElementType::kFloat64;
  } else {
    static_assert(std::is_integral_v<T> && sizeof(T) <= 8, "this type has no ElementType");
    // Unsigned types have the even numbers, in the order of their sizes.
    const int power = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<ElementType>(2 * power + (std::is_signed_v<T> ? 1 : 0));
  }
}

// What one tensor is and what is done with it. See ringd_tensor.
struct Tensor {
  std::string name;
  std::int32_t kind = RINGD_ALLREDUCE;
  ElementType element_type = ElementType::kFloat32;
  Reduction reduction = Reduction::kSum;
  std::vector<std::int64_t> shape;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int32_t root_rank = 0;
};

template <typename T>
Tensor AllReduce(std::string name, std::vector<std::int64_t> shape,
                 Reduction reduction = Reduction::kSum) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.element_type = ElementTypeOf<T>();
  tensor.reduction = reduction;
  tensor.shape = std::move(shape);
  return tensor;
}

template <typename T>
Tensor Broadcast(std::string name, std::vector<std::int64_t> shape, std::int32_t root_rank) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.kind = RINGD_BROADCAST;
  tensor.element_type = ElementTypeOf<T>();
  tensor.shape = std::move(shape);
  tensor.root_rank = root_rank;
  return tensor;
}

inline Tensor Barrier(std::string name) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.kind = RINGD_BARRIER;
  return tensor;
}

// A tensor that ringd knows. A number: cheap to copy, valid as long as its Context.
struct Registration {
  ringd_registration number = 0;
};

namespace detail {
struct Close {
  void operator()(ringd_context* context) const noexcept { ringd_close(context); }
};
}  // namespace detail

// An operation in flight.
//
// Thread safety: one thread at a time; different operations are independent.
// Ownership: does not own the tensor's memory, nor the Context, both of which must outlive it.
//   Waits in its destructor if nobody has waited, because ringd may be using the memory: the job's
//   failure or ringd's death end that wait too.
class Operation {
 public:
  Operation() noexcept = default;
  Operation(ringd_context* context, ringd_operation number) noexcept
      : context_(context), number_(number) {}
  Operation(Operation&& other) noexcept
      : context_(other.context_), number_(std::exchange(other.number_, 0)) {}
  Operation& operator=(Operation&& other) noexcept {
    if (this != &other) {
      Abandon();
      context_ = other.context_;
      number_ = std::exchange(other.number_, 0);
    }
    return *this;
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() { Abandon(); }

  // True until it has been waited for.
  bool pending() const noexcept { return number_ != 0; }

  // Whether Wait would return at once. Does not block.
  bool Done() const {
    if (number_ == 0) return true;
    std::int32_t done = 0;
    ThrowIfFailed(ringd_test(context_, number_, &done));
    return done != 0;
  }

  // Blocks until the operation has ended; throws if it failed. Afterwards it is no longer pending.
  void Wait() {
    if (number_ != 0) ThrowIfFailed(ringd_wait(context_, std::exchange(number_, 0), -1));
  }

  // As Wait, for `timeout` at most. False: still in flight.
  bool WaitFor(std::chrono::milliseconds timeout) {
    if (number_ == 0) return true;
    const std::int64_t limit = timeout.count() < 0 ? 0 : timeout.count();
    const ringd_status status = ringd_wait(context_, number_, limit);
    if (status == RINGD_DEADLINE_EXCEEDED) return false;
    number_ = 0;
    ThrowIfFailed(status);
    return true;
  }

 private:
  void Abandon() noexcept {
    if (number_ != 0) ringd_wait(context_, std::exchange(number_, 0), -1);
  }

  friend void WaitAll(std::span<Operation> operations);

  ringd_context* context_ = nullptr;
  ringd_operation number_ = 0;
};

// Waits for all of them, which are of one Context, in one call. Blocks until all have ended; throws
// if any has failed, what the first that has failed says. Afterwards none is pending.
inline void WaitAll(std::span<Operation> operations) {
  ringd_context* context = nullptr;
  std::vector<ringd_operation> numbers;
  for (Operation& operation : operations) {
    if (!operation.pending()) continue;
    context = operation.context_;
    numbers.push_back(std::exchange(operation.number_, 0));
  }
  if (!numbers.empty()) {
    ThrowIfFailed(ringd_wait_all(context, numbers.data(), numbers.size(), -1));
  }
}

// Elements in the arena.
//
// Ownership: frees them when it goes; the Context must outlive it, and no operation may be using
//   them.
template <typename T>
class ArenaBuffer {
  static_assert(std::is_trivial_v<T>, "the arena holds plain elements");

 public:
  ArenaBuffer() noexcept = default;
  ArenaBuffer(ringd_context* context, std::size_t count) : context_(context), count_(count) {
    void* address = nullptr;
    if (count > SIZE_MAX / sizeof(T)) throw std::length_error("ringd::ArenaBuffer");
    ThrowIfFailed(ringd_arena_alloc(context, count * sizeof(T), &address));
    data_ = static_cast<T*>(address);
  }
  ArenaBuffer(ArenaBuffer&& other) noexcept
      : context_(other.context_),
        data_(std::exchange(other.data_, nullptr)),
        count_(std::exchange(other.count_, 0)) {}
  ArenaBuffer& operator=(ArenaBuffer&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ArenaBuffer(const ArenaBuffer&) = delete;
  ArenaBuffer& operator=(const ArenaBuffer&) = delete;
  ~ArenaBuffer() {
    if (data_ != nullptr) ringd_arena_free(context_, data_);
  }

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return count_; }
  std::span<T> span() const noexcept { return {data_, count_}; }
  T& operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  ringd_context* context_ = nullptr;
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

// A place in a job.
//
// Thread safety: as the C interface: any method from any thread.
// Ownership: leaves the job and frees the arena when it goes, after its operations and buffers.
class Context {
 public:
  // Blocks until all ranks have joined. Without `options` everything comes from the environment.
  explicit Context(const ringd_options* options = nullptr) {
    ringd_context* context = nullptr;
    ThrowIfFailed(ringd_open(options, &context));
    context_.reset(context);
  }

  ringd_place place() const {
    ringd_place place{};
    place.struct_size = sizeof(place);
    ThrowIfFailed(ringd_get_place(context_.get(), &place));
    return place;
  }

  // `count` zeros in the arena.
  template <typename T>
  ArenaBuffer<T> Allocate(std::size_t count) {
    return ArenaBuffer<T>(context_.get(), count);
  }

  // Whether the elements lie in the arena, and so need no copy.
  template <typename T>
  bool InArena(std::span<T> elements) const noexcept {
    return ringd_arena_contains(context_.get(), elements.data(), elements.size_bytes()) != 0;
  }

  // Blocks for a call to ringd if a tensor is new.
  std::vector<Registration> Register(std::span<const Tensor> tensors) {
    std::vector<ringd_tensor> described;
    described.reserve(tensors.size());
    for (const Tensor& tensor : tensors) described.push_back(Describe(tensor));
    std::vector<ringd_registration> numbers(tensors.size());
    ThrowIfFailed(
        ringd_register(context_.get(), described.data(), described.size(), numbers.data()));
    std::vector<Registration> registrations;
    registrations.reserve(numbers.size());
    for (const ringd_registration number : numbers) registrations.push_back({number});
    return registrations;
  }
  Registration Register(const Tensor& tensor) {
    return Register(std::span<const Tensor>(&tensor, 1)).front();
  }

  // As ringd_unregister: of descriptions that do not come again.
  void Unregister(std::span<const Registration> registrations) {
    std::vector<ringd_registration> numbers;
    numbers.reserve(registrations.size());
    for (const Registration registration : registrations) numbers.push_back(registration.number);
    ThrowIfFailed(ringd_unregister(context_.get(), numbers.data(), numbers.size()));
  }
  void Unregister(Registration registration) {
    Unregister(std::span<const Registration>(&registration, 1));
  }

  // Starts an operation from `source` to `destination`, which hold the registered number of
  // elements. Blocks only while the ring is full.
  template <typename T>
  Operation Submit(Registration registration, std::span<const T> source, std::span<T> destination) {
    return SubmitRaw(registration, source.data(), destination.data());
  }
  // In place.
  template <typename T>
  Operation Submit(Registration registration, std::span<T> elements) {
    static_assert(!std::is_const_v<T>, "the result is written into the elements");
    return SubmitRaw(registration, elements.data(), elements.data());
  }
  // For element types without a C++ type, and for barriers (null pointers).
  Operation SubmitRaw(Registration registration, const void* source, void* destination) {
    ringd_operation operation = 0;
    ThrowIfFailed(
        ringd_submit(context_.get(), registration.number, source, destination, &operation));
    return Operation(context_.get(), operation);
  }

  // The same for an operation that is waited for next. Blocks while its ranks carry it out, if they
  // do: see ringd_submit_awaited.
  template <typename T>
  Operation SubmitAwaited(Registration registration, std::span<const T> source,
                          std::span<T> destination) {
    return SubmitAwaitedRaw(registration, source.data(), destination.data());
  }
  template <typename T>
  Operation SubmitAwaited(Registration registration, std::span<T> elements) {
    static_assert(!std::is_const_v<T>, "the result is written into the elements");
    return SubmitAwaitedRaw(registration, elements.data(), elements.data());
  }
  Operation SubmitAwaitedRaw(Registration registration, const void* source, void* destination) {
    ringd_operation operation = 0;
    ThrowIfFailed(
        ringd_submit_awaited(context_.get(), registration.number, source, destination, &operation));
    return Operation(context_.get(), operation);
  }

  // Returns when every rank has called it with the same name.
  void Barrier(const std::string& name = "barrier") {
    SubmitAwaitedRaw(Register(ringd::Barrier(name)), nullptr, nullptr).Wait();
  }

  // For calls of the C interface.
  ringd_context* get() const noexcept { return context_.get(); }

 private:
  static ringd_tensor Describe(const Tensor& tensor) {
    ringd_tensor described{};
    described.struct_size = sizeof(described);
    described.name = tensor.name.c_str();
    described.kind = tensor.kind;
    described.data_type = static_cast<std::int32_t>(tensor.element_type);
    described.op = static_cast<std::int32_t>(tensor.reduction);
    described.dimensions = static_cast<std::int32_t>(tensor.shape.size());
    described.shape = tensor.shape.data();
    described.prescale = tensor.prescale;
    described.postscale = tensor.postscale;
    described.root_rank = tensor.root_rank;
    return described;
  }

  std::unique_ptr<ringd_context, detail::Close> context_;
};

}  // namespace ringd

#endif  // RINGD_CLIENT_RINGD_HPP_
