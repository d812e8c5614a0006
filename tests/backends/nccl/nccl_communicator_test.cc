#include "backends/nccl/nccl_communicator.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "tests/backends/cuda/opened_gpu.h"
#include "tests/gpu/emulator/nccl/emulated_ranks.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::Environment;
using emulator::NcclRank;
using emulator::RunRanks;
using std::chrono::milliseconds;
using std::chrono::seconds;
using State = NcclCommunicator::State;

constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

std::shared_ptr<const NcclApi> Api(const Child& child) {
  return CHILD_VALUE(OpenNccl(emulator::kNcclLibrary));
}

NcclCommunicator::Spec SpecOf(const NcclRank& rank) {
  NcclCommunicator::Spec spec;
  std::memcpy(spec.id.data(), rank.id().bytes, spec.id.size());
  spec.rank = rank.rank();
  spec.size = rank.size();
  spec.gpu = "GPU-of-a-test";
  spec.compute_major = 9;
  return spec;
}

void WaitReady(const Child& child, NcclCommunicator& communicator) {
  child.WaitUntil([&] { return communicator.Poll() != State::kInProgress; }, "NCCL");
  CHILD_STATUS(communicator.status());
}

std::unique_ptr<NcclCommunicator> Join(const Child& child, const NcclRank& rank) {
  auto communicator = CHILD_VALUE(NcclCommunicator::Begin(Api(child), SpecOf(rank)));
  WaitReady(child, *communicator);
  return communicator;
}

absl::Status Sum(NcclCommunicator& communicator, CUdeviceptr memory, CUstream stream) {
  return communicator.AllReduce(memory, memory, 2, DataType::kFloat32, ReduceOp::kSum, stream);
}

TEST_CASE("NcclCommunicator: every operator, in place and apart") {
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          const auto communicator = Join(child, rank);
          const CUstream stream = child.NewStream();
          const float mine = rank.rank() == 0 ? 3.0F : 5.0F;
          const std::pair<ReduceOp, float> kExpected[] = {{ReduceOp::kSum, 8.0F},
                                                          {ReduceOp::kAverage, 4.0F},
                                                          {ReduceOp::kMin, 3.0F},
                                                          {ReduceOp::kMax, 5.0F},
                                                          {ReduceOp::kProduct, 15.0F}};
          for (const auto& [op, expected] : kExpected) {
            const CUdeviceptr send = rank.Floats({mine, mine});
            const CUdeviceptr receive = rank.Floats({0, 0});
            for (const CUdeviceptr to : {receive, send}) {
              CHILD_STATUS(communicator->AllReduce(send, to, 2, DataType::kFloat32, op, stream));
              WaitReady(child, *communicator);
              child.WaitUntil([&] { return child.IsDone(stream); }, "the collective");
              CHILD_CHECK(rank.ReadFloats(to, 2) == std::vector<float>({expected, expected}));
            }
          }
        }) == "");
}

TEST_CASE("NcclCommunicator: what NCCL lacks is refused, and the communicator stays") {
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          const auto communicator = Join(child, rank);
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = rank.Floats({1, 2});
          const auto reduce = [&](DataType type, ReduceOp op) {
            return communicator->AllReduce(memory, memory, 2, type, op, stream);
          };
          for (const DataType type : {DataType::kBool, DataType::kInt16, DataType::kUint16}) {
            CHILD_REFUSED(kUnimplemented, Name(type), reduce(type, ReduceOp::kSum));
          }
          CHILD_REFUSED(kUnimplemented, "averaged", reduce(DataType::kInt32, ReduceOp::kAverage));
          CHILD_STATUS(Sum(*communicator, memory, stream));
          WaitReady(child, *communicator);
          child.WaitUntil([&] { return child.IsDone(stream); }, "the collective");
          CHILD_CHECK(rank.ReadFloats(memory, 2) == std::vector<float>({2, 4}));
        }) == "");
}

TEST_CASE("NcclCommunicator: float8 needs NCCL 2.24") {
  CHECK(RunRanks(1, {{"RINGD_EMULATOR_NCCL_VERSION", "22307"}},
                 [](const Child& child, const NcclRank&) {
                   CHILD_REFUSED(
                       kUnimplemented, "2.24",
                       CheckNcclReduction(*Api(child), 9, DataType::kFloat8E4M3, ReduceOp::kSum));
                 }) == "");
}

TEST_CASE("NcclCommunicator: float8 needs a GPU of compute capability 9.0") {
  const Environment older = {{"RINGD_EMULATOR_CUDA_COMPUTE_MAJOR", "8"}};
  CHECK(RunRanks(1, older, [](const Child& child, const NcclRank& rank) {
          CHILD_REFUSED(kUnimplemented, "9.0",
                        CheckNcclReduction(*Api(child), 8, DataType::kFloat8E5M2, ReduceOp::kSum));
          CHILD_STATUS(CheckNcclReduction(*Api(child), 8, DataType::kFloat16, ReduceOp::kSum));
          // Else NCCL would refuse it, and the communicator would be lost.
          NcclCommunicator::Spec spec = SpecOf(rank);
          spec.compute_major = 8;
          const auto communicator = CHILD_VALUE(NcclCommunicator::Begin(Api(child), spec));
          WaitReady(child, *communicator);
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = rank.Floats({1, 2});
          CHILD_REFUSED(kUnimplemented, "9.0",
                        communicator->AllReduce(memory, memory, 8, DataType::kFloat8E4M3,
                                                ReduceOp::kSum, stream));
          CHILD_STATUS(Sum(*communicator, memory, stream));
        }) == "");
}

TEST_CASE("NcclCommunicator: nothing is launched before the last launch is over") {
  const Environment slow = {{"RINGD_EMULATOR_NCCL_MAX_DELAY_US", "300000"}};
  CHECK(RunRanks(2, slow, [](const Child& child, const NcclRank& rank) {
          const auto communicator = Join(child, rank);
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = rank.Floats({1, 2});
          CHILD_STATUS(Sum(*communicator, memory, stream));
          // The delay may be short.
          if (communicator->Poll() == State::kInProgress) {
            CHILD_REFUSED(absl::StatusCode::kFailedPrecondition, "not ended",
                          Sum(*communicator, memory, stream));
          }
          WaitReady(child, *communicator);
          child.WaitUntil([&] { return child.IsDone(stream); }, "the collective");
        }) == "");
}

TEST_CASE("NcclCommunicator: ranks that never come are given up by an abort, at once") {
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          if (rank.rank() == 1) {
            rank.Pause();
            rank.Pause();
            return;
          }
          const auto communicator = CHILD_VALUE(NcclCommunicator::Begin(Api(child), SpecOf(rank)));
          rank.Pause();
          CHILD_CHECK(communicator->Poll() == State::kInProgress);
          CHILD_CHECK(communicator->Describe().state == "connecting");
          const Clock::time_point begin = Clock::now();
          CHILD_CHECK(communicator->Abort("rank 1 has not come"));
          CHILD_CHECK(Clock::now() - begin < seconds(10));
          CHILD_CHECK(communicator->Poll() == State::kFailed);
          CHILD_REFUSED(absl::StatusCode::kAborted, "rank 1 has not come", communicator->status());
        }) == "");
}

TEST_CASE("NcclCommunicator: an abort lets go of a collective that hangs") {
  const Environment hang = {{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:1"}};
  CHECK(RunRanks(2, hang, [](const Child& child, const NcclRank& rank) {
          const auto communicator = Join(child, rank);
          const CUstream stream = child.NewStream();
          CHILD_STATUS(Sum(*communicator, rank.Floats({1, 2}), stream));
          WaitReady(child, *communicator);
          rank.Pause();
          CHILD_CHECK(!child.IsDone(stream));
          CHILD_STATUS(communicator->status());
          const Clock::time_point begin = Clock::now();
          CHILD_CHECK(communicator->Abort("the collective hangs"));
          CHILD_CHECK(communicator->IsGone());
          child.WaitUntil([&] { return child.IsDone(stream); }, "the stream");
          CHILD_CHECK(Clock::now() - begin < seconds(10));
          CHILD_REFUSED(absl::StatusCode::kAborted, "the collective hangs",
                        Sum(*communicator, rank.Floats({1, 2}), stream));
        }) == "");
}

TEST_CASE("NcclCommunicator: an asynchronous error is found, and stays the first cause") {
  const Environment error = {{"RINGD_EMULATOR_NCCL_FAULTS", "error@0:1=6"}};
  CHECK(RunRanks(2, error, [](const Child& child, const NcclRank& rank) {
          const auto communicator = Join(child, rank);
          const CUstream stream = child.NewStream();
          CHILD_STATUS(Sum(*communicator, rank.Floats({1, 2}), stream));
          if (rank.rank() == 0) {
            child.WaitUntil([&] { return communicator->Poll() == State::kFailed; }, "the error");
            communicator->Abort("of an error");
            CHILD_REFUSED(absl::StatusCode::kAborted, "remote process exited",
                          communicator->status());
            CHILD_CHECK(communicator->Describe().failure.find("remote process exited") !=
                        std::string::npos);
          } else {
            rank.Pause();
          }
          communicator->Abort("the end");
        }) == "");
}

TEST_CASE("NcclCommunicator: letting go in peace waits for what is in flight") {
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          const auto communicator = Join(child, rank);
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = rank.Floats({1, 2});
          if (rank.rank() == 1) rank.Pause();
          CHILD_STATUS(Sum(*communicator, memory, stream));
          WaitReady(child, *communicator);
          CHILD_STATUS(communicator->BeginFinalize());
          WaitReady(child, *communicator);
          CHILD_CHECK(child.IsDone(stream));
          CHILD_CHECK(rank.ReadFloats(memory, 2) == std::vector<float>({2, 4}));
          communicator->BeginDestroy();
          child.WaitUntil([&] { return communicator->IsGone(); }, "its end");
          CHILD_REFUSED(absl::StatusCode::kAborted, "left", Sum(*communicator, memory, stream));
        }) == "");
}

TEST_CASE("NcclCommunicator: an abort that is prepared waits for its beginning, but not for ever") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          for (const bool begins : {true, false}) {
            NcclCommunicator::Spec spec = SpecOf(rank);
            if (!begins) spec.id = CHILD_VALUE(NewNcclId(*Api(child)));
            const auto communicator = CHILD_VALUE(NcclCommunicator::Begin(Api(child), spec));
            WaitReady(child, *communicator);
            const Clock::time_point begin = Clock::now();
            communicator->PrepareAbort("a test");
            CHILD_CHECK(communicator->Poll() == State::kFailed);
            std::this_thread::sleep_for(milliseconds(100));
            const bool is_gone = communicator->IsGone();
            CHILD_CHECK(!is_gone || Clock::now() - begin >= milliseconds(400));
            if (begins) communicator->BeginAbort("a test");
            child.WaitUntil([&] { return communicator->IsGone(); }, "its end");
          }
        }) == "");
}

TEST_CASE("NcclCommunicator: an ncclCommAbort that never returns keeps nobody") {
  const Environment hang = {{"RINGD_EMULATOR_NCCL_HANG", "ncclCommAbort"}};
  CHECK(RunRanks(1, hang, [](const Child& child, const NcclRank& rank) {
          auto communicator = Join(child, rank);
          Clock::time_point begin = Clock::now();
          communicator->BeginAbort("a test");
          CHILD_CHECK(Clock::now() - begin < seconds(10));
          CHILD_CHECK(!communicator->Abort("a test", milliseconds(200)));
          CHILD_CHECK(!communicator->IsGone());
          begin = Clock::now();
          communicator.reset();
          CHILD_CHECK(Clock::now() - begin < NcclCommunicator::kAbortPatience + seconds(10));
        }) == "");
}

TEST_CASE("NcclCommunicator: a thread in a call that hangs does not keep an abort") {
  const Environment hang = {{"RINGD_EMULATOR_NCCL_HANG", "ncclAllReduce"}};
  CHECK(RunRanks(1, hang, [](const Child& child, const NcclRank& rank) {
          // The thread stays in its call until the process ends, and uses both.
          auto* const communicator = Join(child, rank).release();
          const CUdeviceptr memory = rank.Floats({1, 2});
          const CUstream stream = child.NewStream();
          std::thread([=] { (void)Sum(*communicator, memory, stream); }).detach();
          rank.Pause();
          const Clock::time_point begin = Clock::now();
          CHILD_CHECK(communicator->Abort("the call hangs"));
          CHILD_CHECK(Clock::now() - begin < seconds(10));
        }) == "");
}

TEST_CASE("NcclCommunicator: memory is registered until it is deregistered, or all has gone") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          const auto communicator = Join(child, rank);
          const CUdeviceptr memory = rank.Floats({1, 2});
          const NcclRegistration one = CHILD_VALUE(communicator->Register(memory, 8));
          const NcclRegistration other = CHILD_VALUE(communicator->Register(memory, 4));
          CHILD_CHECK(communicator->Describe().registered_bytes == 12);
          CHILD_STATUS(communicator->Deregister(one));
          CHILD_CHECK(communicator->Describe().registered_bytes == 4);
          CHILD_REFUSED(kUnimplemented, "ncclCommRegister", communicator->Register(8, 8).status());
          CHILD_CHECK(communicator->Poll() == State::kReady);
          communicator->NoteNotRegistered("another one can't");
          CHILD_CHECK(communicator->Describe().not_registered == "another one can't");
          // It can't be known what NCCL still has.
          CHILD_REFUSED(absl::StatusCode::kInternal, "ncclCommDeregister",
                        communicator->Deregister(one));
          CHILD_CHECK(communicator->Poll() == State::kFailed);
          CHILD_CHECK(!communicator->Deregister(other).ok());
          CHILD_CHECK(!communicator->Register(memory, 8).ok());
          CHILD_CHECK(communicator->Abort("it has failed"));
          CHILD_CHECK(communicator->Describe().registered_bytes == 0);
        }) == "");
}

TEST_CASE("NcclCommunicator: NCCL may be told to register nothing") {
  CHECK(RunRanks(1, {{"NCCL_LOCAL_REGISTER", "0"}}, [](const Child& child, const NcclRank& rank) {
          const auto communicator = Join(child, rank);
          CHILD_REFUSED(kUnimplemented, "NCCL_LOCAL_REGISTER",
                        communicator->Register(rank.Floats({1}), 4).status());
          CHILD_CHECK(communicator->Poll() == State::kReady);
        }) == "");
}

TEST_CASE("NcclCommunicator: it says what it is") {
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          const auto communicator = Join(child, rank);
          const NcclDescription description = communicator->Describe();
          CHILD_CHECK(description.version == "2.29.7");
          CHILD_CHECK(description.rank == rank.rank());
          CHILD_CHECK(description.size == 2);
          CHILD_CHECK(description.gpu == "GPU-of-a-test");
          CHILD_CHECK(description.state == "ready");
          NcclCommunicator::Spec wrong = SpecOf(rank);
          wrong.rank = 2;
          CHILD_REFUSED(absl::StatusCode::kInvalidArgument, "no rank 2",
                        NcclCommunicator::Begin(Api(child), wrong).status());
        }) == "");
}

TEST_CASE("SetNcclEnvironment: what the user has set stays, unless calls would block") {
  ::unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  ::unsetenv("NCCL_P2P_DIRECT_DISABLE");
  ::setenv("NCCL_COMM_BLOCKING", "1", 1);
  ::setenv("NCCL_SOCKET_IFNAME", "ib", 1);
  SetNcclEnvironment("eth0,eth1");
  CHECK(std::string(::getenv("NCCL_LAUNCH_ORDER_IMPLICIT")) == "1");
  CHECK(std::string(::getenv("NCCL_P2P_DIRECT_DISABLE")) == "1");
  CHECK(std::string(::getenv("NCCL_SOCKET_IFNAME")) == "ib");
  CHECK(std::string(::getenv("NCCL_COMM_BLOCKING")) == "0");
  ::unsetenv("NCCL_SOCKET_IFNAME");
  ::setenv("NCCL_P2P_DIRECT_DISABLE", "0", 1);
  SetNcclEnvironment("");
  CHECK(std::string(::getenv("NCCL_P2P_DIRECT_DISABLE")) == "0");
  CHECK(::getenv("NCCL_SOCKET_IFNAME") == nullptr);
  SetNcclEnvironment("eth0,eth1");
  CHECK(std::string(::getenv("NCCL_SOCKET_IFNAME")) == "=eth0,eth1");
  ::unsetenv("NCCL_SOCKET_IFNAME");
}

}  // namespace
}  // namespace ringd
