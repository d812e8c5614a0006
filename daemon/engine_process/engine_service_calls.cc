// Calls: from a frame to the engine, and its answer back.
#include <unistd.h>

#include <cstring>
#include <utility>

#include "daemon/channel/engine_status.h"
#include "daemon/engine_process/engine_service.h"

namespace ringd {
namespace {

// The longest answer, as gRPC takes them.
constexpr std::size_t kMostReplyBytes = std::size_t{64} << 20;

}  // namespace

template <typename Reply>
Answer<Reply> EngineService::AnswerTo(std::uint64_t number) {
  return [this, number](const absl::Status& status, const Reply& reply) {
    SendAnswer(number, status, status.ok() ? reply.SerializeAsString() : std::string());
  };
}

template <typename Request, typename Reply, typename AskEngine>
absl::Status EngineService::Ask(const v1::EngineCall& call, AskEngine ask) {
  Request request;
  if (!request.ParseFromString(call.request())) {
    return absl::InvalidArgumentError("a call whose request is none");
  }
  ask(request, AnswerTo<Reply>(call.number()));
  return absl::OkStatus();
}

void EngineService::SendAnswer(std::uint64_t number, const absl::Status& status,
                               std::string reply) {
  {
    const MutexLock lock(mutex_);
    joins_.erase(number);
  }
  absl::Status told = status;
  if (reply.size() > kMostReplyBytes) {
    told = absl::ResourceExhaustedError("the answer is longer than 64 MiB");
    reply.clear();
  }
  v1::FromEngine word;
  v1::EngineAnswer* const answer = word.mutable_answer();
  answer->set_number(number);
  WriteStatus(told, answer->mutable_status());
  answer->set_reply(std::move(reply));
  Send(word);
}

absl::Status EngineService::Join(const v1::EngineCall& call, const Caller& caller) {
  DoorKey key{};
  if (call.job_key().size() != key.size()) {
    return absl::InvalidArgumentError("a join without its job's key");
  }
  std::memcpy(key.data(), call.job_key().data(), key.size());
  {
    // It may be answered before the engine's Join has returned.
    const MutexLock lock(mutex_);
    joins_.emplace(call.number(), nullptr);
  }
  return Ask<v1::JoinRequest, v1::JoinReply>(
      call, [&](const v1::JoinRequest& request, Answer<v1::JoinReply> answer) {
        std::function<void()> give_up = engine_->Join(
            caller, call.token(), request, key,
            [answer = std::move(answer)](const absl::Status& outcome, v1::JoinReply reply) {
              reply.set_engine_pid(::getpid());
              answer(outcome, std::move(reply));
            });
        const MutexLock lock(mutex_);
        const auto found = joins_.find(call.number());
        if (found != joins_.end()) found->second = std::move(give_up);
      });
}

void EngineService::GiveUpCall(std::uint64_t number) {
  std::function<void()> give_up;
  {
    const MutexLock lock(mutex_);
    const auto found = joins_.find(number);
    if (found == joins_.end()) return;
    give_up = std::move(found->second);
    joins_.erase(found);
  }
  if (give_up != nullptr) give_up();
}

absl::Status EngineService::BeginCall(const v1::EngineCall& call) {
  const Caller caller{call.uid(), call.is_operator()};
  const std::string& token = call.token();
  switch (call.kind()) {
    case v1::ENGINE_CALL_JOIN:
      return Join(call, caller);
    case v1::ENGINE_CALL_REGISTER_TENSORS:
      return Ask<v1::RegisterTensorsRequest, v1::RegisterTensorsReply>(
          call, [&](const auto& request, auto answer) {
            engine_->RegisterTensors(caller, token, request, std::move(answer));
          });
    case v1::ENGINE_CALL_UNREGISTER_TENSORS:
      return Ask<v1::UnregisterTensorsRequest, v1::UnregisterTensorsReply>(
          call, [&](const auto& request, auto answer) {
            engine_->UnregisterTensors(caller, token, request, std::move(answer));
          });
    case v1::ENGINE_CALL_DESCRIBE_MISMATCH:
      return Ask<v1::DescribeMismatchRequest, v1::DescribeMismatchReply>(
          call, [&](const auto& request, auto answer) {
            engine_->DescribeMismatch(caller, token, request, std::move(answer));
          });
    case v1::ENGINE_CALL_CREATE_COMMUNICATOR:
      return Ask<v1::CreateCommunicatorRequest, v1::CreateCommunicatorReply>(
          call, [&](const auto& request, auto answer) {
            engine_->CreateCommunicator(caller, token, request, std::move(answer));
          });
    case v1::ENGINE_CALL_DESTROY_COMMUNICATOR:
      return Ask<v1::DestroyCommunicatorRequest, v1::DestroyCommunicatorReply>(
          call, [&](const auto& request, auto answer) {
            engine_->DestroyCommunicator(caller, token, request, std::move(answer));
          });
    case v1::ENGINE_CALL_OPEN_DEVICE:
      return Ask<v1::OpenDeviceRequest, v1::OpenDeviceReply>(
          call, [&](const auto& request, auto answer) {
            engine_->OpenDevice(caller, token, request, std::move(answer));
          });
    case v1::ENGINE_CALL_AGREE_ON_DEVICES:
      return Ask<v1::AgreeOnDevicesRequest, v1::AgreeOnDevicesReply>(
          call, [&](const auto& request, auto answer) {
            engine_->AgreeOnDevices(caller, token, request, std::move(answer));
          });
    case v1::ENGINE_CALL_LEAVE:
      return Ask<v1::LeaveRequest, v1::LeaveReply>(call, [&](const auto& request, auto answer) {
        engine_->Leave(caller, token, request, std::move(answer));
      });
    case v1::ENGINE_CALL_LIST_JOBS:
      return Ask<v1::ListJobsRequest, v1::JobsReply>(call, [&](const auto& request, auto answer) {
        engine_->ListJobs(caller, request, std::move(answer));
      });
    case v1::ENGINE_CALL_LIST_COMMUNICATORS:
      return Ask<v1::ListCommunicatorsRequest, v1::CommunicatorsReply>(
          call, [&](const auto& request, auto answer) {
            engine_->ListCommunicators(caller, request, std::move(answer));
          });
    case v1::ENGINE_CALL_LIST_QUEUES:
      return Ask<v1::ListQueuesRequest, v1::QueuesReply>(
          call, [&](const auto& request, auto answer) {
            engine_->ListQueues(caller, request, std::move(answer));
          });
    case v1::ENGINE_CALL_TRACE_JOB:
      return Ask<v1::TraceRequest, v1::TraceReply>(call, [&](const auto& request, auto answer) {
        engine_->TraceJob(caller, request, std::move(answer));
      });
    case v1::ENGINE_CALL_REPORT_EXIT:
      return Ask<v1::ReportExitRequest, v1::ReportExitReply>(
          call, [&](const auto& request, auto answer) {
            engine_->ReportExit(caller, request, std::move(answer));
          });
    default:
      return absl::InvalidArgumentError("a call of an unknown kind");
  }
}

}  // namespace ringd
