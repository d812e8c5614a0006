// The kernels as nvcc has compiled them, inside of this program.
#ifndef RINGD_BACKENDS_CUDA_KERNELS_KERNEL_IMAGES_H_
#define RINGD_BACKENDS_CUDA_KERNELS_KERNEL_IMAGES_H_

#include <cstddef>
#include <span>

namespace ringd {

// A fat binary for cuModuleLoadData, with machine code for sm_80, sm_90 and sm_100, and PTX, which
// the driver compiles for other GPUs. Aligned to 8 bytes; lives as long as the program.
std::span<const std::byte> KernelImages() noexcept;

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_KERNELS_KERNEL_IMAGES_H_
