// Memory on a GPU, for ringd.hpp.
#ifndef RINGD_CLIENT_RINGD_DEVICE_HPP_
#define RINGD_CLIENT_RINGD_DEVICE_HPP_

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "client/ringd.h"
#include "client/ringd_tensor.hpp"

namespace ringd {

// Elements in a Context's device memory (Context::OpenDevice). Tensors there are reduced without a
// copy.
//
// Ownership: frees them when it goes; the Context must outlive it, and neither an operation nor
//   work on a stream may be using them.
template <typename T>
class DeviceBuffer {
  static_assert(std::is_trivial_v<T>, "device memory holds plain elements");

 public:
  DeviceBuffer() noexcept = default;
  DeviceBuffer(ringd_context* context, std::size_t count) : context_(context), count_(count) {
    void* address = nullptr;
    if (count > SIZE_MAX / sizeof(T)) throw std::length_error("ringd::DeviceBuffer");
    ThrowIfFailed(ringd_device_alloc(context, count * sizeof(T), &address));
    data_ = static_cast<T*>(address);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : context_(other.context_),
        data_(std::exchange(other.data_, nullptr)),
        count_(std::exchange(other.count_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    if (data_ != nullptr) ringd_device_free(context_, data_);
  }

  // A device pointer, which the host must not follow: so there is no span of them.
  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return count_; }

 private:
  ringd_context* context_ = nullptr;
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace ringd

#endif  // RINGD_CLIENT_RINGD_DEVICE_HPP_
