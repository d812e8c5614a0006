// What NCCL's operators compute, on the host.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_ARITHMETIC_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_ARITHMETIC_H_

#include <cstddef>
#include <span>

#include "backends/nccl/nccl_types.h"
#include "proto/types/data_type.h"

namespace ringd::emulator {

// destination[i] = sources[0][i] op sources[1][i] op .... `op` is built in. An average of integers
// is the sum, divided and cut off toward zero; one of floating-point numbers is the sum of shares:
// elements times 1 / ranks, which is rounded to their type first. Rounded once; NCCL rounds once a
// step, in an order that it does not promise.
void CombineAll(DataType type, NcclRedOp op, std::span<const void* const> sources,
                void* destination, std::size_t count);

// destination[i] = source[i] * factor.
void Multiply(DataType type, double factor, const void* source, void* destination,
              std::size_t count);

// The value of one element.
double ReadScalar(DataType type, const void* scalar);

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_ARITHMETIC_H_
