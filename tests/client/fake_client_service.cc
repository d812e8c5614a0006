#include "tests/client/fake_client_service.h"

#include <algorithm>
#include <thread>

namespace ringd {
namespace {

bool Authentic(const grpc::ServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto token = metadata.find(kSessionTokenKey);
  return token != metadata.end() && token->second == kFakeToken;
}

}  // namespace

grpc::Status FakeClientService::Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                                     v1::JoinReply* reply) {
  if (!Authentic(*context)) return {grpc::StatusCode::UNAUTHENTICATED, "no token"};
  {
    std::lock_guard lock(mutex_);
    ++joins_;
    last_join_ = {request->job_id(),
                  request->rank(),
                  request->size(),
                  request->local_rank(),
                  request->local_size(),
                  request->rendezvous(),
                  request->secret(),
                  request->start_timeout_ms(),
                  request->operation_timeout_ms(),
                  request->fusion(),
                  request->weight()};
  }
  while (join_hangs_ && !context->IsCancelled() && !stopping_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!join_failure_.ok()) {
    return {static_cast<grpc::StatusCode>(join_failure_.code()),
            std::string(join_failure_.message())};
  }
  reply->set_communicator(3);
  reply->set_generation(9);
  reply->set_node_count(request->size() / std::max(request->local_size(), 1));
  reply->set_cross_size(reply->node_count());
  reply->set_node_name("fake-node");
  reply->set_daemon_version("1.2.3");
  reply->set_homogeneous(true);
  reply->set_rank_exchange_connections(rank_exchange_connections_);
  return grpc::Status::OK;
}

grpc::Status FakeClientService::RegisterTensors(grpc::ServerContext* context,
                                                const v1::RegisterTensorsRequest* request,
                                                v1::RegisterTensorsReply* reply) {
  if (!Authentic(*context)) return {grpc::StatusCode::UNAUTHENTICATED, "no token"};
  std::lock_guard lock(mutex_);
  ++registers_;
  for (const auto& tensor : request->tensors()) {
    if (tensor.communicator() != 3) return {grpc::StatusCode::NOT_FOUND, "no communicator"};
    const std::string key = tensor.SerializeAsString();
    const auto [known, added] = numbers_.emplace(key, 1000 + given_);
    if (added) ++given_;
    const std::uint32_t number = known->second;
    std::lock_guard operations_lock(operations_->mutex);
    operations_->tensors[number] = {static_cast<CollectiveKind>(tensor.kind()),
                                    static_cast<DataType>(tensor.data_type()),
                                    tensor.root_rank() == last_join_.rank};
    reply->add_registrations(number);
    reply->add_tensors(0);
    reply->add_metas(0);
  }
  return grpc::Status::OK;
}

grpc::Status FakeClientService::UnregisterTensors(grpc::ServerContext* context,
                                                  const v1::UnregisterTensorsRequest* request,
                                                  v1::UnregisterTensorsReply*) {
  if (!Authentic(*context)) return {grpc::StatusCode::UNAUTHENTICATED, "no token"};
  std::lock_guard lock(mutex_);
  for (const std::uint32_t number : request->registrations()) {
    const std::size_t erased =
        std::erase_if(numbers_, [number](const auto& entry) { return entry.second == number; });
    if (erased == 0) return {grpc::StatusCode::NOT_FOUND, "no such registration"};
  }
  return grpc::Status::OK;
}

grpc::Status FakeClientService::Leave(grpc::ServerContext* context, const v1::LeaveRequest* request,
                                      v1::LeaveReply*) {
  if (!Authentic(*context)) return {grpc::StatusCode::UNAUTHENTICATED, "no token"};
  {
    std::lock_guard lock(mutex_);
    ++leaves_;
    last_failure_ = request->failure();
  }
  std::this_thread::sleep_for(leave_takes_);
  return grpc::Status::OK;
}

grpc::Status FakeClientService::CreateCommunicator(grpc::ServerContext* context,
                                                   const v1::CreateCommunicatorRequest* request,
                                                   v1::CreateCommunicatorReply* reply) {
  if (!Authentic(*context)) return {grpc::StatusCode::UNAUTHENTICATED, "no token"};
  std::lock_guard lock(mutex_);
  const auto [place, added] = communicators_.emplace(request->name(), made_ + 1);
  if (!added) return {grpc::StatusCode::ALREADY_EXISTS, "this rank is in it"};
  reply->set_number(++made_);
  reply->set_communicator(kFirstCommunicator + made_);
  reply->set_node_count(1);
  reply->set_combines_locally(request->name().starts_with("node"));
  return grpc::Status::OK;
}

grpc::Status FakeClientService::DestroyCommunicator(grpc::ServerContext* context,
                                                    const v1::DestroyCommunicatorRequest* request,
                                                    v1::DestroyCommunicatorReply*) {
  if (!Authentic(*context)) return {grpc::StatusCode::UNAUTHENTICATED, "no token"};
  std::lock_guard lock(mutex_);
  const std::size_t erased = std::erase_if(communicators_, [request](const auto& entry) {
    return kFirstCommunicator + entry.second == request->communicator();
  });
  if (erased == 0) return {grpc::StatusCode::NOT_FOUND, "no such communicator"};
  return grpc::Status::OK;
}

}  // namespace ringd
