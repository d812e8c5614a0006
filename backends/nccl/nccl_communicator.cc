#include "backends/nccl/nccl_communicator.h"

#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/nccl/nccl_api.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

constexpr int kFirstWithFloat8 = 22400;
constexpr int kComputeMajorWithFloat8 = 9;
constexpr int kFirstWithLaunchOrder = 22600;
// ncclCommAbort may come while another thread is in a call (User Guide, Fault Tolerance), but that
// call then finds the communicator going. So it waits a while for one that returns.
constexpr milliseconds kCallPatience{100};
// Who prepares an abort may be in a call of the driver's, or in one that only the abort ends.
constexpr milliseconds kPreparePatience{500};

void* PointerOf(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): NCCL's interface
}

}  // namespace

absl::StatusOr<std::shared_ptr<const NcclApi>> OpenNccl(const std::string& file) {
  auto opened = NcclApi::Open(file);
  if (!opened.ok()) return opened.status();
  return std::shared_ptr<const NcclApi>(*std::move(opened));
}

void SetNcclEnvironment(const std::string& interfaces) {
  constexpr int kKeep = 0;
  constexpr int kReplace = 1;
  // NOLINTBEGIN(concurrency-mt-unsafe): the process has no threads yet.
  ::setenv("NCCL_COMM_BLOCKING", "0", kReplace);
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", kKeep);
  ::setenv("NCCL_P2P_DIRECT_DISABLE", "1", kKeep);
  // "=": whole names, not beginnings of names.
  if (!interfaces.empty()) {
    ::setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", interfaces).c_str(), kKeep);
  }
  // NOLINTEND(concurrency-mt-unsafe)
}

absl::Status PrepareNcclEnvironment(const std::string& interfaces) {
  constexpr int kKeep = 0;
  // NOLINTBEGIN(concurrency-mt-unsafe): as any library's that is told by variables.
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking != nullptr && *blocking != '\0' && absl::string_view(blocking) != "0") {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL_COMM_BLOCKING=", blocking, " makes communicators block, and ringd's ",
                     "must not: unset it for the trainer, or set it to 0"));
  }
  if (!interfaces.empty()) {
    ::setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", interfaces).c_str(), kKeep);
  }
  // NOLINTEND(concurrency-mt-unsafe)
  return absl::OkStatus();
}

std::string VersionOf(const NcclApi& api) { return NcclVersionText(api.version); }

bool OrdersLaunches(const NcclApi& api) { return api.version >= kFirstWithLaunchOrder; }

absl::StatusOr<NcclIdBytes> NewNcclId(const NcclApi& api) {
  NcclUniqueId made{};
  static_assert(sizeof made.bytes == sizeof(NcclIdBytes));
  const NcclResult result = api.ncclGetUniqueId(&made);
  if (auto status = NcclStatus(api, nullptr, "ncclGetUniqueId", result); !status.ok()) {
    return status;
  }
  NcclIdBytes id{};
  std::memcpy(id.data(), made.bytes, id.size());
  return id;
}

absl::Status CheckNcclReduction(const NcclApi& api, int compute_major, DataType type, ReduceOp op) {
  if (!IsValid(type) || !NcclTypeOf(type)) {
    return absl::UnimplementedError(absl::StrCat("NCCL has no elements of type ", Name(type)));
  }
  if (IsFloat8(type) && api.version < kFirstWithFloat8) {
    return absl::UnimplementedError(
        absl::StrCat("NCCL ", NcclVersionText(api.version), " has no elements of type ", Name(type),
                     "; ", NcclVersionText(kFirstWithFloat8), " is the first that has"));
  }
  if (IsFloat8(type) && compute_major < kComputeMajorWithFloat8) {
    return absl::UnimplementedError(absl::StrCat(
        "NCCL reduces elements of type ", Name(type), " on GPUs of compute capability ",
        kComputeMajorWithFloat8, ".0 and later, and this one has ", compute_major));
  }
  if (!IsValid(op)) return absl::UnimplementedError("NCCL has no such operator");
  if (op == ReduceOp::kAverage && !IsFloatingPoint(type)) {
    return absl::UnimplementedError(
        absl::StrCat("elements of type ", Name(type), " are not averaged by NCCL"));
  }
  return absl::OkStatus();
}

struct NcclCommunicator::Shared {
  Shared(std::shared_ptr<const NcclApi> functions, const Spec& spec)
      : api(std::move(functions)),
        rank(spec.rank),
        size(spec.size),
        gpu(spec.gpu),
        compute_major(spec.compute_major) {}

  // NCCL writes it, too, by a thread of its own, when the ranks have met.
  NcclComm* Comm() const { return __atomic_load_n(&comm, __ATOMIC_ACQUIRE); }

  // False: it is being aborted. Else EndCall follows.
  bool BeginCall() ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    if (is_aborting) return false;
    is_in_call = true;
    return true;
  }
  void EndCall() ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    is_in_call = false;
    changed.NotifyAll();
  }

  // The first failure stays.
  absl::Status Fail(const absl::Status& failure) ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    if (status.ok()) status = failure;
    return status;
  }

  absl::Status status_now() ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    return status;
  }

  // On a thread of its own.
  void EndNow(bool is_finalized) ABSL_LOCKS_EXCLUDED(mutex) {
    {
      const MutexLock lock(mutex);
      const Clock::time_point prepared = Clock::now() + kPreparePatience;
      while (!may_end && changed.WaitUntil(mutex, prepared)) {
      }
      const Clock::time_point patience = Clock::now() + kCallPatience;
      while (is_in_call && changed.WaitUntil(mutex, patience)) {
      }
    }
    if (NcclComm* const handle = Comm(); handle != nullptr) {
      is_finalized ? api->ncclCommDestroy(handle) : api->ncclCommAbort(handle);
    }
    const MutexLock lock(mutex);
    is_gone = true;
    registered_bytes = 0;  // it went with the communicator
    changed.NotifyAll();
  }

  const std::shared_ptr<const NcclApi> api;
  const int rank;
  const int size;
  const std::string gpu;
  const int compute_major;
  NcclComm* comm = nullptr;
  Mutex mutex;
  CondVar changed;
  absl::Status status ABSL_GUARDED_BY(mutex);
  bool is_connected ABSL_GUARDED_BY(mutex) = false;
  bool is_in_call ABSL_GUARDED_BY(mutex) = false;
  bool is_aborting ABSL_GUARDED_BY(mutex) = false;
  bool may_end ABSL_GUARDED_BY(mutex) = false;  // what was to be prepared has been
  bool is_gone ABSL_GUARDED_BY(mutex) = false;
  std::uint64_t registered_bytes ABSL_GUARDED_BY(mutex) = 0;
  std::string not_registered ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Begin(
    std::shared_ptr<const NcclApi> api, const Spec& spec) {
  if (spec.size < 1 || spec.rank < 0 || spec.rank >= spec.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a communicator of ", spec.size, " ranks has no rank ", spec.rank));
  }
  auto shared = std::make_shared<Shared>(std::move(api), spec);
  NcclUniqueId id{};
  std::memcpy(id.bytes, spec.id.data(), spec.id.size());
  NcclConfig config;
  config.blocking = 0;
  const NcclResult result =
      shared->api->ncclCommInitRankConfig(&shared->comm, spec.size, id, spec.rank, &config);
  if (result != kNcclSuccess && result != kNcclInProgress) {
    return NcclStatus(*shared->api, nullptr, "ncclCommInitRankConfig", result);
  }
  return std::unique_ptr<NcclCommunicator>(new NcclCommunicator(std::move(shared)));
}

NcclCommunicator::~NcclCommunicator() { Abort("it is not needed any more"); }

NcclCommunicator::State NcclCommunicator::Poll() {
  Shared& shared = *shared_;
  if (!shared.status_now().ok() || !shared.BeginCall()) return State::kFailed;
  NcclResult state = kNcclInProgress;
  NcclResult asked = kNcclSuccess;
  NcclComm* const comm = shared.Comm();
  if (comm != nullptr) asked = shared.api->ncclCommGetAsyncError(comm, &state);
  if (asked == kNcclSuccess && (state == kNcclInProgress || state == kNcclSuccess)) {
    shared.EndCall();
    if (state == kNcclInProgress) return State::kInProgress;
    const MutexLock lock(shared.mutex);
    shared.is_connected = true;
    return State::kReady;
  }
  const absl::Status failure = asked == kNcclSuccess
                                   ? NcclStatus(*shared.api, comm, "NCCL has failed", state)
                                   : NcclStatus(*shared.api, comm, "ncclCommGetAsyncError", asked);
  shared.EndCall();
  (void)shared.Fail(failure);
  return State::kFailed;
}

absl::Status NcclCommunicator::status() const { return shared_->status_now(); }

absl::Status NcclCommunicator::AllReduce(std::uint64_t send, std::uint64_t receive,
                                         std::uint64_t count, DataType type, ReduceOp op,
                                         void* stream) {
  if (auto status = CheckNcclReduction(*shared_->api, shared_->compute_major, type, op);
      !status.ok()) {
    return status;
  }
  return Launch("ncclAllReduce", [&](const NcclApi& api, NcclComm* comm) {
    return api.ncclAllReduce(PointerOf(send), PointerOf(receive), count, *NcclTypeOf(type),
                             NcclOpOf(op), comm, static_cast<NcclStream*>(stream));
  });
}

absl::Status NcclCommunicator::Broadcast(std::uint64_t send, std::uint64_t receive,
                                         std::uint64_t bytes, int root, void* stream) {
  return Launch("ncclBroadcast", [&](const NcclApi& api, NcclComm* comm) {
    return api.ncclBroadcast(PointerOf(send), PointerOf(receive), bytes, kNcclUint8, root, comm,
                             static_cast<NcclStream*>(stream));
  });
}

absl::Status NcclCommunicator::Call(const char* name, Function function, absl::Status* result) {
  Shared& shared = *shared_;
  const State state = Poll();
  if (state == State::kInProgress) {
    return absl::FailedPreconditionError("the communicator's last call has not ended yet");
  }
  if (state == State::kFailed || !shared.BeginCall()) return shared.status_now();
  NcclComm* const comm = shared.Comm();
  // Before EndCall: an abort frees the communicator, of which NCCL tells its last error.
  *result = NcclStatus(*shared.api, comm, name, function(*shared.api, comm));
  shared.EndCall();
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Launch(const char* name, Function function) {
  const auto begin = [&function](const NcclApi& api, NcclComm* comm) {
    const NcclResult answer = function(api, comm);
    return answer == kNcclInProgress ? kNcclSuccess : answer;
  };
  absl::Status result;
  if (auto status = Call(name, begin, &result); !status.ok()) return status;
  return result.ok() ? result : shared_->Fail(result);
}

absl::StatusOr<NcclRegistration> NcclCommunicator::Register(std::uint64_t address,
                                                            std::size_t bytes) {
  NcclRegistration made{nullptr, bytes};
  const auto function = [&](const NcclApi& api, NcclComm* comm) {
    return api.ncclCommRegister(comm, PointerOf(address), bytes, &made.handle);
  };
  absl::Status result;
  if (auto status = Call("ncclCommRegister", function, &result); !status.ok()) return status;
  if (!result.ok()) return absl::UnimplementedError(result.message());
  if (made.handle == nullptr) {
    return absl::UnimplementedError(
        "NCCL registers no memory here, or NCCL_LOCAL_REGISTER is set to 0");
  }
  const MutexLock lock(shared_->mutex);
  shared_->registered_bytes += bytes;
  return made;
}

absl::Status NcclCommunicator::Deregister(const NcclRegistration& registration) {
  const auto function = [&](const NcclApi& api, NcclComm* comm) {
    return api.ncclCommDeregister(comm, registration.handle);
  };
  absl::Status result;
  if (auto status = Call("ncclCommDeregister", function, &result); !status.ok()) return status;
  if (!result.ok()) return shared_->Fail(result);
  const MutexLock lock(shared_->mutex);
  shared_->registered_bytes -= registration.bytes;
  return absl::OkStatus();
}

void NcclCommunicator::NoteNotRegistered(absl::string_view why) {
  const MutexLock lock(shared_->mutex);
  shared_->not_registered = std::string(why);
}

absl::Status NcclCommunicator::BeginFinalize() {
  return Launch("ncclCommFinalize",
                [](const NcclApi& api, NcclComm* comm) { return api.ncclCommFinalize(comm); });
}

void NcclCommunicator::BeginDestroy() { BeginEnd("the communicator has been left", true, true); }

void NcclCommunicator::PrepareAbort(absl::string_view reason) { BeginEnd(reason, false, false); }

void NcclCommunicator::BeginAbort(absl::string_view reason) { BeginEnd(reason, false, true); }

void NcclCommunicator::BeginEnd(absl::string_view reason, bool is_finalized, bool may_end) {
  {
    const MutexLock lock(shared_->mutex);
    if (may_end && !std::exchange(shared_->may_end, true)) shared_->changed.NotifyAll();
    if (shared_->is_aborting) return;
    shared_->is_aborting = true;
    if (shared_->status.ok()) shared_->status = absl::AbortedError(reason);
  }
  try {
    std::thread([shared = shared_, is_finalized] { shared->EndNow(is_finalized); }).detach();
  } catch (const std::system_error&) {
    // There are no threads left. The communicator stays as it is, and IsGone false.
  }
}

bool NcclCommunicator::Abort(absl::string_view reason, milliseconds patience) {
  BeginAbort(reason);
  const Clock::time_point deadline = Clock::now() + patience;
  const MutexLock lock(shared_->mutex);
  while (!shared_->is_gone && shared_->changed.WaitUntil(shared_->mutex, deadline)) {
  }
  return shared_->is_gone;
}

bool NcclCommunicator::IsGone() const {
  const MutexLock lock(shared_->mutex);
  return shared_->is_gone;
}

NcclDescription NcclCommunicator::Describe() const {
  NcclDescription description;
  description.version = NcclVersionText(shared_->api->version);
  description.rank = shared_->rank;
  description.size = shared_->size;
  description.gpu = shared_->gpu;
  const MutexLock lock(shared_->mutex);
  description.registered_bytes = shared_->registered_bytes;
  description.not_registered = shared_->not_registered;
  if (!shared_->status.ok()) {
    description.state = "failed";
    description.failure = std::string(shared_->status.message());
  } else {
    description.state = shared_->is_connected ? "ready" : "connecting";
  }
  return description;
}

}  // namespace ringd
