// How processes that know nothing but a name find each other: a socket in the abstract namespace.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_RENDEZVOUS_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_RENDEZVOUS_H_

#include <string>

#include "proto/base/unique_fd.h"
#include "tests/gpu/emulator/nccl/world.h"

namespace ringd::emulator {

// The first thing that a rank says.
struct Hello {
  std::int32_t size;
  std::int32_t rank;
  Identity identity;
};

// The size of the memory of a world of `size` ranks.
std::size_t WorldBytes(int size);

// Starts a thread that waits for all ranks, lays out their memory and sends it to each. Ranks that
// disagree about their number, or that are there twice, keep all of them waiting, as in NCCL.
// False: the name is taken.
bool ServeRendezvous(const std::string& name);

// The memory that the server has sent, for `hello.size` ranks. Results as World::Join.
NcclResult AttendRendezvous(const std::string& name, const Hello& hello, const GiveUp& give_up,
                            UniqueFd* memory);

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_RENDEZVOUS_H_
