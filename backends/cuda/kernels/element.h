// The types that the kernels know, one value at a time: the arithmetic is that of proto/reduce, so
// that a tensor gets the same bits on a GPU as in host memory, but for which of several NaNs.
#ifndef RINGD_BACKENDS_CUDA_KERNELS_ELEMENT_H_
#define RINGD_BACKENDS_CUDA_KERNELS_ELEMENT_H_

#include <cstdint>
#include <type_traits>

#include "proto/reduce/float16.h"
#include "proto/reduce/float8.h"
#include "proto/reduce/integer_arithmetic.h"
#include "proto/types/data_type.h"

// Bodies of kernels are compiled by nvcc for GPUs, and by the host's compiler for tests.
#ifdef __CUDACC__
#define RINGD_KERNEL_BODY __host__ __device__
#else
#define RINGD_KERNEL_BODY
#endif

namespace ringd::kernels {

// Of each floating-point type: how it is stored, and the type in which it is scaled.
template <DataType kType>
struct Float;

template <>
struct Float<DataType::kFloat64> {
  using Stored = double;
  using Wide = double;
  static RINGD_KERNEL_BODY double Load(double stored) { return stored; }
  static RINGD_KERNEL_BODY double Store(double wide) { return wide; }
};

template <>
struct Float<DataType::kFloat32> {
  using Stored = float;
  using Wide = float;
  static RINGD_KERNEL_BODY float Load(float stored) { return stored; }
  static RINGD_KERNEL_BODY float Store(float wide) { return wide; }
};

template <>
struct Float<DataType::kFloat16> {
  using Stored = std::uint16_t;
  using Wide = float;
  static RINGD_KERNEL_BODY float Load(Stored stored) { return Float16ToFloat(stored); }
  static RINGD_KERNEL_BODY Stored Store(float wide) { return FloatToFloat16(wide); }
};

template <>
struct Float<DataType::kBfloat16> {
  using Stored = std::uint16_t;
  using Wide = float;
  static RINGD_KERNEL_BODY float Load(Stored stored) { return Bfloat16ToFloat(stored); }
  static RINGD_KERNEL_BODY Stored Store(float wide) { return FloatToBfloat16(wide); }
};

template <>
struct Float<DataType::kFloat8E4M3> {
  using Stored = std::uint8_t;
  using Wide = float;
  static RINGD_KERNEL_BODY float Load(Stored stored) { return Float8E4M3ToFloat(stored); }
  static RINGD_KERNEL_BODY Stored Store(float wide) { return FloatToFloat8<Float8E4M3>(wide); }
};

template <>
struct Float<DataType::kFloat8E5M2> {
  using Stored = std::uint8_t;
  using Wide = float;
  static RINGD_KERNEL_BODY float Load(Stored stored) { return Float8E5M2ToFloat(stored); }
  static RINGD_KERNEL_BODY Stored Store(float wide) { return FloatToFloat8<Float8E5M2>(wide); }
};

// A cast with a multiplication in between, both in float64 if either type is float64, else in
// float32. From float64 to a narrow type it goes by way of float32: rounded twice.
template <DataType kFrom, DataType kTo>
struct FloatMove {
  using From = typename Float<kFrom>::Stored;
  using To = typename Float<kTo>::Stored;
  using Wide =
      std::conditional_t<kFrom == DataType::kFloat64 || kTo == DataType::kFloat64, double, float>;
  Wide factor;

  RINGD_KERNEL_BODY To operator()(From stored) const {
    const Wide scaled = static_cast<Wide>(Float<kFrom>::Load(stored)) * factor;
    return Float<kTo>::Store(static_cast<typename Float<kTo>::Wide>(scaled));
  }
};

// Integers are scaled, never cast.
template <typename Integer>
struct IntegerMove {
  using From = Integer;
  using To = Integer;
  double factor;
  std::int64_t divisor;

  RINGD_KERNEL_BODY Integer operator()(Integer value) const {
    using Divided = std::conditional_t<std::is_signed_v<Integer>, std::int64_t, std::uint64_t>;
    if (factor != 1.0) value = reduce_internal::MultiplyClamped(value, factor);
    if (divisor == 1) return value;
    const auto exact = static_cast<Divided>(value);
    return static_cast<Integer>(reduce_internal::FloorDivider(divisor)(exact));
  }
};

// The bytes as they are.
template <typename Unit>
struct Copy {
  using From = Unit;
  using To = Unit;
  RINGD_KERNEL_BODY Unit operator()(Unit unit) const { return unit; }
};

}  // namespace ringd::kernels

#endif  // RINGD_BACKENDS_CUDA_KERNELS_ELEMENT_H_
