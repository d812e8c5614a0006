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
// On a GPU, in the order of a CUDA stream, so that the host waits for nothing:
//
//   context.OpenDevice(0, 1 << 30);                            // CUDA's ordinal, bytes
//   auto gradient = context.AllocateOnDevice<float>(1000);
//   const ringd::Registration registration =
//       context.Register(ringd::OnDevice(ringd::AllReduce<float>("layer1.weight", {1000})));
//   ...                                                        // kernels on `stream` fill it
//   auto operation = context.SubmitOnStream(registration, gradient, stream);
//   operation.OrderOn(stream);                                 // what comes next there has the sum
//
// Everything is inline over the C interface, whose rules hold: what may be called from where, who
// owns the buffers, which functions block. A program compiled against this header needs no more of
// the library than the functions of ringd.h. C++20.
//
// Errors: every failure is thrown as ringd::Error, except by destructors.
#ifndef RINGD_CLIENT_RINGD_HPP_
#define RINGD_CLIENT_RINGD_HPP_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/ringd.h"
#include "client/ringd_device.hpp"
#include "client/ringd_operation.hpp"
#include "client/ringd_tensor.hpp"

namespace ringd {

namespace detail {
struct Close {
  void operator()(ringd_context* context) const noexcept { ringd_close(context); }
};
}  // namespace detail

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

// A communicator of some ranks of the job. Tensors are of it whose Tensor::communicator is
// number(); their operations are submitted to the Context like all others.
//
// Thread safety: as the C interface: any method from any thread, destruction last.
// Ownership: this rank's part in it, given back when it goes, which does not wait for the others.
//   Of a part in which an operation has not been waited for, the Context keeps what is left. The
//   Context must outlive it. Registrations of its tensors go with it.
class Communicator {
 public:
  Communicator() noexcept = default;
  Communicator(ringd_context* context, ringd_communicator number) noexcept
      : context_(context), number_(number) {}
  Communicator(Communicator&& other) noexcept
      : context_(std::exchange(other.context_, nullptr)), number_(other.number_) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(number_, other.number_);
    return *this;
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (context_ != nullptr) ringd_communicator_destroy(context_, number_);
  }

  ringd_communicator number() const noexcept { return number_; }
  // Does not block.
  ringd_communicator_place place() const {
    ringd_communicator_place place{};
    place.struct_size = sizeof(place);
    ThrowIfFailed(ringd_get_communicator_place(context_, number_, &place));
    return place;
  }
  // As its destructor, but throws what is wrong; afterwards there is none.
  void Destroy() {
    if (context_ != nullptr) {
      ThrowIfFailed(ringd_communicator_destroy(std::exchange(context_, nullptr), number_));
    }
  }

 private:
  ringd_context* context_ = nullptr;
  ringd_communicator number_ = RINGD_ALL_RANKS;
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

  // Makes a communicator of these ranks, this one among them: all of them call it, with one name
  // and the same list. Blocks until all have, for `timeout` at most (0: the start timeout). See
  // ringd_communicator_create. `matching`: RINGD_BY_NAME or RINGD_BY_ORDER.
  Communicator CreateCommunicator(const std::string& name, std::span<const std::int32_t> ranks,
                                  std::chrono::milliseconds timeout = {},
                                  std::int32_t matching = RINGD_BY_NAME) {
    ringd_communicator_options options{};
    options.struct_size = sizeof(options);
    options.name = name.c_str();
    options.ranks = ranks.data();
    options.count = ranks.size();
    options.timeout_ms = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(timeout.count(), 0, std::numeric_limits<std::uint32_t>::max()));
    options.matching = matching;
    ringd_communicator number = RINGD_ALL_RANKS;
    ThrowIfFailed(ringd_communicator_create(context_.get(), &options, &number));
    return Communicator(context_.get(), number);
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

  // Opens the GPU of CUDA's ordinal `device` with so much device memory for tensors and copies of
  // tensors, once. Blocks, 60 s at most. See ringd_device_open; `cuda_library` as there.
  void OpenDevice(std::int32_t device, std::uint64_t slab_bytes,
                  const char* cuda_library = nullptr) {
    ringd_device_options options{};
    options.struct_size = sizeof(options);
    options.device = device;
    options.slab_bytes = slab_bytes;
    options.cuda_library = cuda_library;
    ThrowIfFailed(ringd_device_open(context_.get(), &options));
  }

  // `count` elements there, with any content.
  template <typename T>
  DeviceBuffer<T> AllocateOnDevice(std::size_t count) {
    return DeviceBuffer<T>(context_.get(), count);
  }

  // Starts an operation of a tensor OnDevice, in place, when `stream` (a CUstream or cudaStream_t;
  // null: the default stream) has done what was put on it before. See ringd_submit_on_stream.
  template <typename T>
  Operation SubmitOnStream(Registration registration, const DeviceBuffer<T>& elements,
                           void* stream) {
    return SubmitOnStreamRaw(registration, elements.data(), elements.data(), stream);
  }
  // From and to device pointers anywhere on the GPU.
  Operation SubmitOnStreamRaw(Registration registration, const void* source, void* destination,
                              void* stream) {
    ringd_operation operation = 0;
    ThrowIfFailed(ringd_submit_on_stream(context_.get(), registration.number, source, destination,
                                         stream, &operation));
    return Operation(context_.get(), operation);
  }

  // The next operation of a communicator that matches by order: see ringd_submit_in_order.
  Operation SubmitInOrder(const Communicator& communicator, ringd_collective collective,
                          const void* source, void* destination) {
    collective.struct_size = sizeof(collective);
    ringd_operation operation = 0;
    ThrowIfFailed(ringd_submit_in_order(context_.get(), communicator.number(), &collective, source,
                                        destination, &operation));
    return Operation(context_.get(), operation);
  }

  // Returns when every rank (of the communicator) has called it with the same name.
  void Barrier(const std::string& name = "barrier",
               ringd_communicator communicator = RINGD_ALL_RANKS) {
    Tensor tensor = ringd::Barrier(name);
    tensor.communicator = communicator;
    SubmitAwaitedRaw(Register(tensor), nullptr, nullptr).Wait();
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
    described.communicator = tensor.communicator;
    described.memory = tensor.memory;
    return described;
  }

  std::unique_ptr<ringd_context, detail::Close> context_;
};

}  // namespace ringd

#endif  // RINGD_CLIENT_RINGD_HPP_
