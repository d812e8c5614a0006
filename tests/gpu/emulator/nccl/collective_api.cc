// NCCL's collectives, groups and operators, and what it says about itself.
#include <cstddef>
#include <memory>
#include <optional>

#include "tests/gpu/emulator/nccl/arithmetic.h"
#include "tests/gpu/emulator/nccl/collective.h"
#include "tests/gpu/emulator/nccl/group.h"
#include "tests/gpu/emulator/nccl/last_error.h"
#include "tests/gpu/emulator/nccl/settings.h"

using namespace ringd;            // NOLINT(google-build-using-namespace)
using namespace ringd::emulator;  // NOLINT(google-build-using-namespace)

namespace {

NcclResult Do(NcclComm* handle, const CollectiveCall& call) {
  const auto communicator = Communicator::Find(handle);
  if (communicator == nullptr) return Group::Note(kNcclInvalidArgument);
  if (const NcclResult ready = communicator->CheckReady(); ready != kNcclSuccess) {
    return Group::Note(ready);
  }
  if (communicator->has_finalized()) {
    return Group::Note(Failed(kNcclInvalidUsage, "the communicator is finalized"));
  }
  if (const NcclResult checked = CheckCall(*communicator, call); checked != kNcclSuccess) {
    return Group::Note(checked);
  }
  return Group::Note(Group::Submit(communicator, Group::Work::kLaunch,
                                   [communicator, call] { return Launch(communicator, call); }));
}

}  // namespace

extern "C" {

NcclResult ncclGetVersion(int* version) {
  if (version == nullptr) return Failed(kNcclInvalidArgument, "no place for the version");
  *version = Settings().version;
  return kNcclSuccess;
}

const char* ncclGetErrorString(NcclResult result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result >= kNcclSuccess && result <= kNcclInProgress ? kTexts[result]
                                                             : "unknown result code";
}

const char* ncclGetLastError(NcclComm* /*comm*/) { return LastError(); }

NcclResult ncclGroupStart() {
  Group::Begin();
  return kNcclSuccess;
}

NcclResult ncclGroupEnd() { return Group::End(); }

NcclResult ncclAllReduce(const void* send, void* receive, std::size_t count, NcclDataType type,
                         NcclRedOp op, NcclComm* comm, NcclStream* stream) {
  HangIfAsked("ncclAllReduce");
  return Do(comm, {CollectiveKind::kAllReduce, send, receive, count, type, op, 0, stream});
}

NcclResult ncclBroadcast(const void* send, void* receive, std::size_t count, NcclDataType type,
                         int root, NcclComm* comm, NcclStream* stream) {
  return Do(comm, {CollectiveKind::kBroadcast, send, receive, count, type, kNcclSum, root, stream});
}

NcclResult ncclReduceScatter(const void* send, void* receive, std::size_t count, NcclDataType type,
                             NcclRedOp op, NcclComm* comm, NcclStream* stream) {
  return Do(comm, {CollectiveKind::kReduceScatter, send, receive, count, type, op, 0, stream});
}

NcclResult ncclAllGather(const void* send, void* receive, std::size_t count, NcclDataType type,
                         NcclComm* comm, NcclStream* stream) {
  return Do(comm, {CollectiveKind::kAllGather, send, receive, count, type, kNcclSum, 0, stream});
}

NcclResult ncclRedOpCreatePreMulSum(NcclRedOp* op, void* scalar, NcclDataType type,
                                    NcclScalarResidence residence, NcclComm* comm) {
  const auto communicator = Communicator::Find(comm);
  if (communicator == nullptr) return kNcclInvalidArgument;
  if (const NcclResult ready = communicator->CheckReady(); ready != kNcclSuccess) return ready;
  const std::optional<DataType> ours = DataTypeOf(type);
  if (op == nullptr || scalar == nullptr || !ours) {
    return Failed(kNcclInvalidArgument, "no scalar, or no such type of data");
  }
  PreMulSum made{*ours, 1.0, nullptr};
  if (residence == kNcclScalarHostImmediate) {
    made.factor = ReadScalar(*ours, scalar);
  } else {
    made.device = scalar;
  }
  return communicator->AddOperator(made, op);
}

NcclResult ncclRedOpDestroy(NcclRedOp op, NcclComm* comm) {
  const auto communicator = Communicator::Find(comm);
  if (communicator == nullptr || !communicator->RemoveOperator(op)) {
    return Failed(kNcclInvalidArgument, "the communicator has no such operator");
  }
  return kNcclSuccess;
}

}  // extern "C"
