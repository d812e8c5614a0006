// The calls that clients make to a FakeRingd: answered at once, counted and kept.
#ifndef RINGD_TESTS_CLIENT_FAKE_CLIENT_SERVICE_H_
#define RINGD_TESTS_CLIENT_FAKE_CLIENT_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "proto/rpc/client.grpc.pb.h"
#include "tests/client/fake_ringd.h"
#include "tests/client/fake_session.h"

namespace ringd {

// Every session has the same token: nobody here means harm.
inline constexpr char kFakeToken[] = "0123456789abcdef0123456789abcdef";

// Thread safety: any method from any thread.
// Ownership: `operations`, where tensors are registered, must outlive it.
class FakeClientService final : public v1::Client::Service {
 public:
  FakeClientService(const FakeRingdSettings& settings, FakeOperations* operations)
      : join_failure_(settings.join_failure),
        join_hangs_(settings.join_hangs),
        leave_takes_(settings.leave_takes),
        rank_exchange_connections_(
            settings.rank_exchange == nullptr ? 0 : settings.rank_exchange->connection_count()),
        operations_(operations) {}

  // A Join that hangs returns.
  void Stop() { stopping_ = true; }

  SeenJoin last_join() const { return Get(last_join_); }
  int join_calls() const { return Get(joins_); }
  int register_calls() const { return Get(registers_); }
  int leave_calls() const { return Get(leaves_); }
  std::string last_failure() const { return Get(last_failure_); }  // of a Leave

  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override;
  grpc::Status RegisterTensors(grpc::ServerContext* context,
                               const v1::RegisterTensorsRequest* request,
                               v1::RegisterTensorsReply* reply) override;
  grpc::Status UnregisterTensors(grpc::ServerContext* context,
                                 const v1::UnregisterTensorsRequest* request,
                                 v1::UnregisterTensorsReply* reply) override;
  grpc::Status Leave(grpc::ServerContext* context, const v1::LeaveRequest* request,
                     v1::LeaveReply* reply) override;
  // Communicators of one rank. Those whose names begin with "node" are on one node; their memory is
  // for the test to send.
  grpc::Status CreateCommunicator(grpc::ServerContext* context,
                                  const v1::CreateCommunicatorRequest* request,
                                  v1::CreateCommunicatorReply* reply) override;
  grpc::Status DestroyCommunicator(grpc::ServerContext* context,
                                   const v1::DestroyCommunicatorRequest* request,
                                   v1::DestroyCommunicatorReply* reply) override;

 private:
  static constexpr std::uint32_t kFirstCommunicator = 100;

  template <typename T>
  T Get(const T& value) const {
    std::lock_guard lock(mutex_);
    return value;
  }

  const absl::Status join_failure_;
  const bool join_hangs_;
  const std::chrono::milliseconds leave_takes_;
  const std::uint32_t rank_exchange_connections_;
  FakeOperations* const operations_;
  std::atomic<bool> stopping_{false};

  mutable std::mutex mutex_;  // guards what follows
  SeenJoin last_join_;
  std::map<std::string, std::uint32_t> numbers_;  // of tensors, by description
  std::uint32_t given_ = 0;
  std::map<std::string, std::uint32_t> communicators_;  // their numbers
  std::uint32_t made_ = 0;
  int joins_ = 0;
  int registers_ = 0;
  int leaves_ = 0;
  std::string last_failure_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_CLIENT_FAKE_CLIENT_SERVICE_H_
