#include "client/core/attach/control_channel.h"

#include <fcntl.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/attach/call_ping.h"
#include "client/core/attach/library_version.h"
#include "client/core/attach/program_name.h"
#include "client/core/waiting/signals_blocked.h"
#include "proto/attach/handshake.h"
#include "proto/base/text.h"
#include "proto/rpc/client.grpc.pb.h"
#include "proto/rpc/client.pb.h"
#include "proto/types/failure_words.h"

namespace ringd::client {
namespace {

// A registration's message is kept below HTTP/2's first window of 64 KiB, so that it never waits in
// the middle for leave to go on: gRPC 1.51 has been seen to sleep there until its pollers' 10 s
// were over.
constexpr std::size_t kRegisterMessageBytes = 48 * 1024;
constexpr std::size_t kNumbersPerMessage = 8192;

absl::Status FromGrpc(const grpc::Status& status) {
  // The numbers are the same.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

class GrpcControlChannel final : public ControlChannel {
 public:
  GrpcControlChannel(std::shared_ptr<grpc::Channel> channel, std::string token)
      : channel_(std::move(channel)),
        stub_(v1::Client::NewStub(channel_)),
        token_(std::move(token)) {}

  absl::StatusOr<JoinedPlace> Join(const JoinParameters& parameters, Clock::time_point deadline,
                                   const InterruptCheck& is_interrupted) override {
    v1::JoinRequest request;
    request.set_job_id(parameters.job_id);
    request.set_rank(parameters.places.rank);
    request.set_size(parameters.places.size);
    request.set_local_rank(parameters.places.local_rank);
    request.set_local_size(parameters.places.local_size);
    request.set_rendezvous(parameters.rendezvous);
    request.set_secret(parameters.secret);
    request.set_start_timeout_ms(parameters.start_timeout_ms);
    request.set_operation_timeout_ms(parameters.operation_timeout_ms);
    request.set_fusion(parameters.fusion);
    request.set_weight(parameters.weight);
    request.set_library_version(kLibraryVersion);
    request.set_pid(::getpid());
    request.set_program(OwnProgramName());

    v1::JoinReply reply;
    grpc::ClientContext context;
    Prepare(context, deadline);
    const absl::Status status = Interruptible(
        context, is_interrupted, reply,
        [&](grpc::CompletionQueue* queue) { return stub_->AsyncJoin(&context, request, queue); });
    if (!status.ok()) return status;
    JoinedPlace place;
    place.communicator = reply.communicator();
    place.generation = reply.generation();
    place.node_count = reply.node_count();
    place.node_index = reply.node_index();
    place.cross_rank = reply.cross_rank();
    place.cross_size = reply.cross_size();
    place.homogeneous = reply.homogeneous();
    place.combines_locally = reply.combines_locally();
    place.rank_exchange_connections = reply.rank_exchange_connections();
    place.operation_timeout_ms = reply.operation_timeout_ms();
    place.engine_pid = reply.engine_pid();
    place.node_name = reply.node_name();
    place.daemon_version = reply.daemon_version();
    return place;
  }

  absl::StatusOr<std::vector<RegisteredNumbers>> Register(
      std::uint32_t communicator, std::span<const TensorDescription> tensors,
      Clock::time_point deadline) override {
    std::vector<RegisteredNumbers> numbers;
    numbers.reserve(tensors.size());
    while (!tensors.empty()) {
      v1::RegisterTensorsRequest request;
      std::size_t message_bytes = 0;
      std::size_t count = 0;
      do {
        v1::TensorDescription& message = *request.add_tensors();
        Fill(message, communicator, tensors[count]);
        message_bytes += message.ByteSizeLong();
      } while (++count < tensors.size() && message_bytes < kRegisterMessageBytes);
      tensors = tensors.subspan(count);
      v1::RegisterTensorsReply reply;
      grpc::ClientContext context;
      Prepare(context, deadline);
      const absl::Status status = Call(context, reply, [&](grpc::CompletionQueue* queue) {
        return stub_->AsyncRegisterTensors(&context, request, queue);
      });
      if (!status.ok()) return status;
      const auto answered = static_cast<std::size_t>(reply.registrations_size());
      if (answered != count || reply.tensors_size() != reply.registrations_size() ||
          reply.metas_size() != reply.registrations_size()) {
        return absl::InternalError(
            absl::StrCat("ringd answered ", answered, " registrations to ", count));
      }
      for (int i = 0; i < reply.registrations_size(); ++i) {
        numbers.push_back({reply.registrations(i), reply.tensors(i), reply.metas(i)});
      }
    }
    return numbers;
  }

  absl::Status Unregister(std::span<const std::uint32_t> registrations,
                          Clock::time_point deadline) override {
    while (!registrations.empty()) {
      const auto part = registrations.first(std::min(registrations.size(), kNumbersPerMessage));
      registrations = registrations.subspan(part.size());
      v1::UnregisterTensorsRequest request;
      request.mutable_registrations()->Add(part.begin(), part.end());
      v1::UnregisterTensorsReply reply;
      grpc::ClientContext context;
      Prepare(context, deadline);
      const absl::Status status = Call(context, reply, [&](grpc::CompletionQueue* queue) {
        return stub_->AsyncUnregisterTensors(&context, request, queue);
      });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> DescribeMismatch(std::uint32_t communicator, std::uint32_t tensor,
                                               std::span<const std::uint32_t> metas,
                                               Clock::time_point deadline) override {
    v1::DescribeMismatchRequest request;
    request.set_communicator(communicator);
    request.set_tensor(tensor);
    request.mutable_metas()->Add(metas.begin(), metas.end());
    grpc::ClientContext context;
    Prepare(context, deadline);
    v1::DescribeMismatchReply reply;
    const absl::Status status = Call(context, reply, [&](grpc::CompletionQueue* queue) {
      return stub_->AsyncDescribeMismatch(&context, request, queue);
    });
    if (!status.ok()) return status;
    return reply.text();
  }

  absl::StatusOr<MadeCommunicator> CreateCommunicator(
      const AskedCommunicator& asked, Clock::time_point deadline,
      const InterruptCheck& is_interrupted) override {
    v1::CreateCommunicatorRequest request;
    request.set_name(asked.name);
    request.mutable_ranks()->Add(asked.ranks.begin(), asked.ranks.end());
    request.set_timeout_ms(asked.timeout_ms);
    request.set_by_order(asked.by_order);
    request.set_again(asked.again);
    grpc::ClientContext context;
    Prepare(context, deadline);
    v1::CreateCommunicatorReply reply;
    const absl::Status status =
        Interruptible(context, is_interrupted, reply, [&](grpc::CompletionQueue* queue) {
          return stub_->AsyncCreateCommunicator(&context, request, queue);
        });
    if (!status.ok()) return status;
    return MadeCommunicator{.id = reply.communicator(),
                            .number = reply.number(),
                            .node_count = reply.node_count(),
                            .node_index = reply.node_index(),
                            .combines_locally = reply.combines_locally()};
  }

  absl::Status DestroyCommunicator(std::uint32_t id, Clock::time_point deadline) override {
    v1::DestroyCommunicatorRequest request;
    request.set_communicator(id);
    grpc::ClientContext context;
    Prepare(context, deadline);
    v1::DestroyCommunicatorReply reply;
    return Call(context, reply, [&](grpc::CompletionQueue* queue) {
      return stub_->AsyncDestroyCommunicator(&context, request, queue);
    });
  }

  absl::StatusOr<OpenedDevice> OpenDevice(const AskedDevice& asked,
                                          Clock::time_point deadline) override {
    v1::OpenDeviceRequest request;
    request.set_uuid(asked.uuid);
    request.set_slab_bytes(asked.slab_bytes);
    request.set_can_launch(true);
    request.set_can_go_by_host(true);
    request.set_wants_host_path(asked.wants_host_path);
    request.set_why_no_gpu(asked.why_no_gpu);
    if (asked.is_under_mps.has_value()) request.set_is_under_mps(*asked.is_under_mps);
    grpc::ClientContext context;
    Prepare(context, deadline);
    v1::OpenDeviceReply reply;
    const absl::Status status = Call(context, reply, [&](grpc::CompletionQueue* queue) {
      return stub_->AsyncOpenDevice(&context, request, queue);
    });
    if (!status.ok()) return status;
    return OpenedDevice{reply.trainer_launches(), reply.goes_by_host(), reply.why_host()};
  }

  absl::StatusOr<AgreedDevices> AgreeOnDevices(std::uint32_t communicator,
                                               Clock::time_point deadline,
                                               const InterruptCheck& is_interrupted) override {
    v1::AgreeOnDevicesRequest request;
    request.set_communicator(communicator);
    grpc::ClientContext context;
    Prepare(context, deadline);
    v1::AgreeOnDevicesReply reply;
    const absl::Status status =
        Interruptible(context, is_interrupted, reply, [&](grpc::CompletionQueue* queue) {
          return stub_->AsyncAgreeOnDevices(&context, request, queue);
        });
    if (!status.ok()) return status;
    return AgreedDevices{reply.goes_by_host(), reply.why()};
  }

  absl::Status Leave(absl::string_view failure, Clock::time_point deadline) override {
    v1::LeaveRequest request;
    request.set_failure(CleanLine(CutToLength(failure, kMostFailureBytes)));
    grpc::ClientContext context;
    Prepare(context, deadline);
    v1::LeaveReply reply;
    return Call(context, reply, [&](grpc::CompletionQueue* queue) {
      return stub_->AsyncLeave(&context, request, queue);
    });
  }

  std::uint64_t Ping() override { return ping_.Ask(); }

 private:
  void Prepare(grpc::ClientContext& context, Clock::time_point deadline) const {
    context.AddMetadata(kSessionTokenKey, token_);
    context.set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(deadline - Clock::now()));
  }

  // The call that `begin` begins.
  template <typename Reply, typename Begin>
  static absl::Status Call(grpc::ClientContext& context, Reply& reply, Begin begin) {
    return Interruptible(context, nullptr, reply, begin);
  }

  // The same. kCancelled: it was interrupted, and ringd may have answered.
  template <typename Reply, typename Begin>
  static absl::Status Interruptible(grpc::ClientContext& context,
                                    const InterruptCheck& is_interrupted, Reply& reply,
                                    Begin begin) {
    grpc::CompletionQueue queue;
    grpc::Status status;
    {
      // gRPC may start threads for it. The wait takes the caller's signals.
      const SignalsBlocked blocked;
      begin(&queue)->Finish(&reply, &status, nullptr);
    }
    bool interrupted = false;
    void* tag = nullptr;
    bool ok = false;
    while (queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kInterruptInterval) ==
           grpc::CompletionQueue::TIMEOUT) {
      if (interrupted || is_interrupted == nullptr || !is_interrupted()) continue;
      interrupted = true;
      context.TryCancel();  // it comes out at once
    }
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    if (interrupted) return absl::CancelledError("the wait for other ranks was interrupted");
    return FromGrpc(status);
  }

  static void Fill(v1::TensorDescription& message, std::uint32_t communicator,
                   const TensorDescription& tensor) {
    message.set_communicator(communicator);
    message.set_name(tensor.name);
    message.set_kind(static_cast<std::uint32_t>(tensor.kind));
    message.set_data_type(static_cast<std::uint32_t>(tensor.data_type));
    message.set_op(static_cast<std::uint32_t>(tensor.op));
    for (const std::int64_t extent : tensor.shape) message.add_shape(extent);
    message.set_prescale(tensor.prescale);
    message.set_postscale(tensor.postscale);
    message.set_root_rank(tensor.root_rank);
    message.set_place(static_cast<std::uint32_t>(tensor.place));
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Client::Stub> stub_;
  const std::string token_;
  CallPing ping_{stub_.get()};
};

}  // namespace

std::unique_ptr<ControlChannel> ControlChannel::Create(UniqueFd socket, const std::string& token) {
  // gRPC's threads, most of which it starts here, stay with the process.
  const SignalsBlocked blocked;
  // gRPC wants its sockets non-blocking, and closes them itself.
  const int flags = ::fcntl(socket.get(), F_GETFL);
  ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK);
  grpc::ChannelArguments arguments;
  // One short conversation with one local peer: no subchannels shared with the program's own gRPC,
  // no proxies, no balancing.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return std::make_unique<GrpcControlChannel>(
      grpc::CreateCustomInsecureChannelFromFd("ringd", socket.Release(), arguments), token);
}

}  // namespace ringd::client
