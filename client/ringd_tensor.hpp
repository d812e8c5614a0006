// What a tensor is, for ringd.hpp: types, reductions, descriptions; and how errors are thrown.
#ifndef RINGD_CLIENT_RINGD_TENSOR_HPP_
#define RINGD_CLIENT_RINGD_TENSOR_HPP_

#include <cstddef>
#include <cstdint>
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
  // Of whose ranks: all, or a Communicator's number().
  ringd_communicator communicator = RINGD_ALL_RANKS;
  // RINGD_HOST_MEMORY, or RINGD_DEVICE_MEMORY: of the GPU that Context::OpenDevice has opened.
  std::int32_t memory = RINGD_HOST_MEMORY;
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

// The same tensor in device memory: for Context::SubmitOnStream.
inline Tensor OnDevice(Tensor tensor) {
  tensor.memory = RINGD_DEVICE_MEMORY;
  return tensor;
}

inline Tensor Barrier(std::string name) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.kind = RINGD_BARRIER;
  return tensor;
}

}  // namespace ringd

#endif  // RINGD_CLIENT_RINGD_TENSOR_HPP_
