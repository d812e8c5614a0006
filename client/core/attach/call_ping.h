// Whether ringd answers calls at all, while one of them waits for other ranks.
#ifndef RINGD_CLIENT_CORE_ATTACH_CALL_PING_H_
#define RINGD_CLIENT_CORE_ATTACH_CALL_PING_H_

#include <grpcpp/completion_queue.h>

#include <cstdint>
#include <memory>

#include "proto/rpc/client.grpc.pb.h"

namespace ringd::client {

// One ping after the other, without a thread of its own. Of ringd itself: what ringd_ping asks is
// the job's engine.
//
// Thread safety: one thread at a time.
// Ownership: borrows the stub. The destructor gives up what is under way.
class CallPing {
 public:
  explicit CallPing(v1::Client::Stub* stub);
  CallPing(const CallPing&) = delete;
  CallPing& operator=(const CallPing&) = delete;
  ~CallPing();

  // Takes an answer that has come, and asks again unless a ping is under way. How many have been
  // answered; never grows when ringd has gone. Does not block.
  std::uint64_t Ask();

 private:
  struct Asked;

  v1::Client::Stub* const stub_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<Asked> asked_;  // null: none is under way
  std::uint64_t answered_ = 0;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_CALL_PING_H_
