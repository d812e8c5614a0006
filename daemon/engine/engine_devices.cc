// OpenDevice: device memory for a trainer. AgreeOnDevices: whether it is used for tensors.
#include <unistd.h>

#include <cstdlib>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "daemon/logging/log.h"

namespace ringd {
namespace {

// Opening a GPU that sleeps takes seconds, and clearing its memory.
constexpr std::chrono::seconds kOpenTimeout{55};
constexpr std::chrono::seconds kAgreementGrace{5};
// For ranks and other nodes to hear why.
constexpr std::chrono::seconds kLastWords{1};

}  // namespace

absl::StatusOr<v1::OpenDeviceReply> Engine::GiveSlab(SessionId id, const absl::Status& status,
                                                     std::shared_ptr<const SessionSlab> slab,
                                                     const UniqueFd& descriptor) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) found->second.opens_device = false;
  if (!status.ok()) {
    // Else the rank may try again, with less memory.
    const bool is_final = absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
    if (is_final) TellNoGpu(id, status.message());
    return status;
  }
  // It may have gone meanwhile; then the slab goes, too.
  const absl::StatusOr<SessionEntry*> member = FindMember(id);
  if (!member.ok()) return member.status();
  SessionEntry& entry = **member;
  v1::OpenDeviceReply reply;
  if (slab->launched_by() == LaunchedBy::kEngine) {
    const DeviceSlabNotice notice{slab->bytes(), 0};
    entry.session->SendMemory(NoticeKind::kDeviceSlab, std::as_bytes(std::span(&notice, 1)),
                              descriptor.get());
  } else {
    reply.set_trainer_launches(true);
  }
  reply.set_slab_bytes(slab->bytes() - kTimelineBytes);
  v1::RankDevice told;
  told.set_registers(slab->registers());
  entry.session->UseSlab(std::move(slab));
  entry.job->TellDevice(*entry.session, std::move(told));
  return reply;
}

absl::StatusOr<v1::OpenDeviceReply> Engine::GiveHostPath(SessionId id,
                                                         const v1::OpenDeviceRequest& request,
                                                         const std::string& why) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) found->second.opens_device = false;
  const absl::StatusOr<SessionEntry*> member = FindMember(id);
  if (!member.ok()) return member.status();
  HostPathGpu gpu;
  gpu.uuid = request.uuid();
  if (request.has_is_under_mps()) gpu.is_under_mps = request.is_under_mps();
  gpu.why = why;
  (*member)->session->UseHostPath(std::move(gpu));
  v1::RankDevice told;
  told.set_goes_by_host(true);
  told.set_why(!why.empty()                ? why
               : request.wants_host_path() ? "RINGD_HOST_PATH=1 is set there"
                                           : "device_launch = \"host\" is set there");
  (*member)->job->TellDevice(*(*member)->session, std::move(told));
  v1::OpenDeviceReply reply;
  reply.set_goes_by_host(true);
  reply.set_why_host(why);
  return reply;
}

void Engine::TellNoGpu(SessionId id, absl::string_view why) {
  const absl::StatusOr<SessionEntry*> member = FindMember(id);
  if (!member.ok()) return;
  v1::RankDevice told;
  told.set_has_no_gpu(true);
  told.set_why(std::string(why));
  (*member)->job->TellDevice(*(*member)->session, std::move(told));
}

DeviceAsker Engine::AskerFor(const SessionEntry& entry, const v1::OpenDeviceRequest& request) {
  DeviceAsker asker;
  asker.name = entry.job->NameOf(*entry.session);
  asker.can_launch = request.can_launch();
  asker.wants_host_path = request.wants_host_path();
  if (request.has_is_under_mps()) asker.is_under_mps = request.is_under_mps();
  asker.hand_over = [this, id = entry.session->id()](const UniqueFd& socket) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;  // the other end sees that nobody has it
    found->second.session->SendMemory(NoticeKind::kDeviceLaunch, {}, socket.get());
  };
  return asker;
}

void Engine::OpenDevice(const Caller&, absl::string_view token,
                        const v1::OpenDeviceRequest& request, Answer<v1::OpenDeviceReply> answer) {
  const auto call = BeginCall(calls_, std::move(answer), kOpenTimeout, [] {
    return absl::DeadlineExceededError(
        "ringd's engine has not opened the GPU in time: its driver does not answer");
  });
  PostToJob(call, token, [this, call, request](const SessionEntry& entry) {
    absl::Status may = entry.job->MayOpenDevice(*entry.session);
    if (may.ok() && entry.opens_device) {
      may = absl::AlreadyExistsError("this rank opens a GPU already");
    }
    if (may.ok() && !request.why_no_gpu().empty()) {
      TellNoGpu(entry.session->id(), request.why_no_gpu());
      may = absl::FailedPreconditionError(request.why_no_gpu());
    }
    if (!may.ok()) {
      call->Finish(may);
      return;
    }
    sessions_.at(entry.session->id()).opens_device = true;
    DeviceAsker asker = AskerFor(entry, request);
    if (request.can_go_by_host()) {
      asker.go_by_host = [this, call, request, id = entry.session->id()](const std::string& why) {
        auto reply = GiveHostPath(id, request, why);
        call->Finish(reply.status(), [reply] { return *reply; });
      };
    }
    devices_.OpenSlab(request.uuid(), request.slab_bytes(), std::move(asker),
                      [this, call, id = entry.session->id()](
                          const absl::Status& status, std::shared_ptr<const SessionSlab> slab,
                          const UniqueFd& descriptor) {
                        auto reply = GiveSlab(id, status, std::move(slab), descriptor);
                        call->Finish(reply.status(), [reply] { return *reply; });
                      });
  });
}

void Engine::AgreeOnDevices(const Caller&, absl::string_view token,
                            const v1::AgreeOnDevicesRequest& request,
                            Answer<v1::AgreeOnDevicesReply> answer) {
  // The job answers by then.
  const auto call = BeginCall(calls_, std::move(answer), kLongestAgreement + kAgreementGrace, [] {
    return absl::DeadlineExceededError("the ranks have not agreed on their GPUs");
  });
  PostToJob(call, token, [call, request](const SessionEntry& entry) {
    entry.job->AgreeOnDevices(*entry.session, CommunicatorId(request.communicator()), Clock::now(),
                              [call](const absl::Status& status, const AgreedDevices& agreed) {
                                call->Finish(status, [agreed] {
                                  v1::AgreeOnDevicesReply reply;
                                  reply.set_goes_by_host(agreed.goes_by_host);
                                  reply.set_why(agreed.why);
                                  return reply;
                                });
                              });
  });
}

void Engine::LookAtDevices(Clock::time_point now) {
  if (ends_at_.has_value()) {
    if (now < *ends_at_) return;
    LogError("ends, and leaves a GPU's driver in its call");
    ::_exit(EXIT_FAILURE);
  }
  devices_.DropExpired(now, !sessions_.empty() || !jobs_.empty());
  devices_.LookAtTrainers(now, options_.config.engine_patience);
  const std::string hung = devices_.DescribeHung(now, options_.config.engine_patience);
  if (hung.empty()) return;
  for (const auto& job : jobs_) {
    job->Fail(absl::AbortedError(
        absl::StrCat("the engine on ", options_.config.node_name, " can't use its GPU: ", hung)));
  }
  ends_at_ = now + kLastWords;
}

}  // namespace ringd
