// The instruction sets that the kernels are compiled for. Include before any header of Highway.
//
// AVX-512, AVX2 with F16C, and portable C++ for whatever is older: nobody trains on the processors
// in between, and every further set costs compile time.
#ifndef RINGD_PROTO_REDUCE_TARGETS_H_
#define RINGD_PROTO_REDUCE_TARGETS_H_

#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#endif  // RINGD_PROTO_REDUCE_TARGETS_H_
