// Runs a test with each instruction set that the kernels are compiled for and this processor has.
#ifndef RINGD_TESTS_PROTO_REDUCE_INSTRUCTION_SETS_H_
#define RINGD_TESTS_PROTO_REDUCE_INSTRUCTION_SETS_H_

#include <hwy/targets.h>

#include <catch2/catch.hpp>
#include <cstdint>

namespace ringd {

template <typename Body>
void ForEachInstructionSet(Body body) {
#if defined(__x86_64__)
  constexpr std::int64_t kTargets[] = {HWY_AVX3, HWY_AVX2, HWY_SCALAR};
#else
  const std::int64_t kTargets[] = {hwy::SupportedTargets(), HWY_SCALAR};
#endif
  for (const std::int64_t target : kTargets) {
    if (target != HWY_SCALAR && (hwy::SupportedTargets() & target) == 0) continue;
    INFO("instruction set " << hwy::TargetName(target));
    hwy::GetChosenTarget().Update(target == HWY_SCALAR ? 0 : target);
    body();
  }
  hwy::GetChosenTarget().DeInit();
}

}  // namespace ringd

#endif  // RINGD_TESTS_PROTO_REDUCE_INSTRUCTION_SETS_H_
