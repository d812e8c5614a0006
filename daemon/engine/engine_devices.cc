// OpenDevice: device memory for a trainer.
#include <span>
#include <utility>

#include "daemon/engine/engine.h"

namespace ringd {
namespace {

// Opening a GPU that sleeps takes seconds, and clearing its memory.
constexpr std::chrono::seconds kOpenTimeout{55};

}  // namespace

absl::StatusOr<v1::OpenDeviceReply> Engine::GiveSlab(SessionId id, const absl::Status& status,
                                                     std::shared_ptr<const SessionSlab> slab,
                                                     const UniqueFd& descriptor) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) found->second.opens_device = false;
  if (!status.ok()) return status;
  // It may have gone meanwhile; then the slab goes, too.
  const absl::StatusOr<SessionEntry*> member = FindMember(id);
  if (!member.ok()) return member.status();
  SessionEntry& entry = **member;
  const DeviceSlabNotice notice{slab->bytes(), 0};
  entry.session->SendMemory(NoticeKind::kDeviceSlab, std::as_bytes(std::span(&notice, 1)),
                            descriptor.get());
  v1::OpenDeviceReply reply;
  reply.set_slab_bytes(slab->bytes() - kTimelineBytes);
  entry.session->UseSlab(std::move(slab));
  return reply;
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
    if (!may.ok()) {
      call->Finish(may);
      return;
    }
    sessions_.at(entry.session->id()).opens_device = true;
    devices_.OpenSlab(request.uuid(), request.slab_bytes(),
                      [this, call, id = entry.session->id()](
                          const absl::Status& status, std::shared_ptr<const SessionSlab> slab,
                          const UniqueFd& descriptor) {
                        auto reply = GiveSlab(id, status, std::move(slab), descriptor);
                        call->Finish(reply.status(), [reply] { return *reply; });
                      });
  });
}

}  // namespace ringd
