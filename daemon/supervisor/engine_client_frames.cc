// What an engine says to its supervisor.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/channel/engine_status.h"
#include "daemon/supervisor/engine_client.h"
#include "daemon/supervisor/part_count.h"

namespace ringd {
namespace {

// More than any job's members, plans or addresses have.
constexpr std::size_t kMostParts = 200'000;

}  // namespace

void EngineClient::OnFrame(ChannelFrame frame) {
  // What is parsed takes many times its bytes if it has many small parts.
  if (CountParts(*v1::FromEngine::descriptor(), frame.bytes, kMostParts + 1).all > kMostParts) {
    return End(absl::StrCat("has sent a frame of more than ", kMostParts, " parts"));
  }
  v1::FromEngine word;
  if (!word.ParseFromString(frame.bytes)) return End("has sent what is no frame");
  frame.bytes = std::string();
  {
    const MutexLock lock(mutex_);
    life_.heard = Clock::now();
  }
  switch (word.what_case()) {
    case v1::FromEngine::kStarted:
      if (const absl::Status status = ReadStatus(word.started().status()); !status.ok()) {
        End(absl::StrCat("could not begin: ", status.message()));
      }
      return;
    case v1::FromEngine::kAnswer:
      return OnAnswer(std::move(*word.mutable_answer()), std::move(frame.room));
    case v1::FromEngine::kSessionEnded:
      return OnSessionEnded(word.session_ended());
    case v1::FromEngine::kNetwork: {
      // It may send events at once, which takes the lock.
      std::shared_ptr<EngineNetwork> network;
      {
        const MutexLock lock(mutex_);
        network = place_.network;
      }
      if (network == nullptr) return;
      const absl::Status status = network->OnRequest(word.network());
      if (!status.ok()) End(absl::StrCat("broke the protocol: ", status.message()));
      return;
    }
    case v1::FromEngine::kJobs:
      jobs_.store(word.jobs().jobs(), std::memory_order_relaxed);
      return;
    case v1::FromEngine::kGeneration:
      return parts_.owner->OnGeneration(*this, word.generation().next());
    case v1::FromEngine::kJobEnded:
      return parts_.owner->OnJobEnded(*this, word.job_ended());
    case v1::FromEngine::kKeep:
      return parts_.owner->OnKeep(*this, std::move(*word.mutable_keep()));
    case v1::FromEngine::kBeat: {
      const MutexLock lock(mutex_);
      life_.heartbeat = word.beat().heartbeat();
      life_.activity = {static_cast<EngineDoing>(word.beat().doing()), word.beat().communicator()};
      return;
    }
    case v1::FromEngine::kIdle:
      return parts_.owner->OnIdle(*this, word.idle().sessions());
    default:
      return End("has sent a frame of an unknown kind");
  }
}

void EngineClient::OnAnswer(v1::EngineAnswer answer, std::shared_ptr<const void> room) {
  std::shared_ptr<PendingCall<EngineReply>> pending;
  {
    const MutexLock lock(mutex_);
    const auto found = calls_.find(answer.number());
    if (found == calls_.end()) return;
    pending = std::move(found->second);
    calls_.erase(found);
  }
  const absl::Status status = ReadStatus(answer.status());
  pending->Finish(
      status, [reply = EngineReply{std::move(*answer.mutable_reply()), std::move(room)}]() mutable {
        return std::move(reply);
      });
}

void EngineClient::OnSessionEnded(const v1::EngineSessionEnded& ended) {
  Held held;
  {
    const MutexLock lock(mutex_);
    const auto found = held_.find(SessionId(ended.id()));
    if (found == held_.end()) return;
    held = std::move(found->second);
    held_.erase(found);
  }
  parts_.owner->OnSessionEnded(*this, held.token, ended.for_cause());
  parts_.isolated->Discard(std::move(held.lifeline));
}

}  // namespace ringd
