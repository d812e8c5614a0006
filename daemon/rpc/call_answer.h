// How ringd's answers become gRPC's. Included by the services' sources only.
#ifndef RINGD_DAEMON_RPC_CALL_ANSWER_H_
#define RINGD_DAEMON_RPC_CALL_ANSWER_H_

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/rpc/grpc_status.h"
#include "daemon/rpc/node_calls.h"
#include "daemon/rpc/user_calls.h"
#include "proto/base/counted_places.h"
#include "proto/base/mutex.h"

namespace ringd {

// A call ends when ringd has answered, or its caller has gone: it waits for nobody then.
//
// Thread safety: any thread.
// Ownership: its own; it goes when gRPC is done with it, which is after it has ended.
class CallReactor final : public grpc::ServerUnaryReactor {
 public:
  // What is left of a call that ringd may still answer. The call counts as long.
  class UnderWay {
   public:
    UnderWay(CallReactor* reactor, CountedPlaces::Place place)
        : place_(std::move(place)), reactor_(reactor) {}
    // Whoever is given the reactor, once, finishes it. Null: it has ended.
    CallReactor* End() ABSL_LOCKS_EXCLUDED(mutex_) {
      const MutexLock lock(mutex_);
      return std::exchange(reactor_, nullptr);
    }

   private:
    const CountedPlaces::Place place_;
    Mutex mutex_;
    CallReactor* reactor_ ABSL_GUARDED_BY(mutex_);
  };

  // `request`: the place of what gRPC keeps of the call as long as this lives.
  CallReactor(CountedPlaces::Place place, CountedPlaces::Place request)
      : under_way_(std::make_shared<UnderWay>(this, std::move(place))),
        request_(std::move(request)) {}

  const std::shared_ptr<UnderWay>& under_way() const noexcept { return under_way_; }
  // Kept until gRPC is done with it.
  void KeepReply(CountedPlaces::Place place) noexcept { reply_ = std::move(place); }

  // What ringd is told if the caller goes.
  void UseCancel(std::function<void()> cancel) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (!cancelled_) {
        cancel_ = std::move(cancel);
        return;
      }
    }
    cancel();
  }

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_) {
    std::function<void()> cancel;
    {
      const MutexLock lock(mutex_);
      cancelled_ = true;
      cancel = std::move(cancel_);
    }
    if (under_way_->End() != nullptr) {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone"));
    }
    if (cancel != nullptr) cancel();
  }

  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<UnderWay> under_way_;
  const CountedPlaces::Place request_;
  CountedPlaces::Place reply_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> cancel_ ABSL_GUARDED_BY(mutex_);
};

// Fills `reply` and ends the call. Both are gRPC's until then.
template <typename Reply>
Answer<Reply> AnswerTo(const CallReactor& reactor, std::shared_ptr<UserCalls> calls, Reply* reply) {
  return [under_way = reactor.under_way(), calls = std::move(calls), reply](
             const absl::Status& status, Reply answer) {
    CallReactor* const ended = under_way->End();
    if (ended == nullptr) return;
    CountedPlaces::Place place = calls->reply_bytes.Take(status.ok() ? answer.ByteSizeLong() : 0);
    if (place == nullptr) {
      return ended->Finish(
          {grpc::StatusCode::RESOURCE_EXHAUSTED,
           absl::StrCat("this user has more than ", calls->reply_bytes.most() >> 20,
                        " MiB of replies that were not taken yet")});
    }
    ended->KeepReply(std::move(place));
    *reply = std::move(answer);
    ended->Finish(ToGrpcStatus(status));
  };
}

// Serves a call: `ask` gets the Answer, and hands it to ringd. If it returns a function, that
// tells ringd that the caller has gone.
template <typename Reply, typename Ask>
grpc::ServerUnaryReactor* Serve(const std::shared_ptr<UserCalls>& calls,
                                const google::protobuf::Message& request, Reply* reply, Ask ask) {
  CountedPlaces::Place place = calls->calls.Take();
  CountedPlaces::Place kept = calls->request_bytes.Take(request.SpaceUsedLong());
  const bool has_place = place != nullptr;
  const bool has_room = kept != nullptr;
  // It outlives this function, which gRPC waits for.
  auto* const reactor = new CallReactor(std::move(place), std::move(kept));
  Answer<Reply> answer = AnswerTo(*reactor, calls, reply);
  if (!has_room) {
    answer(absl::ResourceExhaustedError(
               absl::StrCat("requests of this user that wait for an answer take more than ",
                            calls->request_bytes.most() >> 20, " MiB")),
           {});
  } else if (!has_place) {
    answer(absl::ResourceExhaustedError(absl::StrCat(calls->calls.most(),
                                                     " calls of this user wait for an answer, as ",
                                                     "many as one user may have")),
           {});
  } else if constexpr (std::is_void_v<decltype(ask(std::move(answer)))>) {
    ask(std::move(answer));
  } else {
    reactor->UseCancel(ask(std::move(answer)));
  }
  return reactor;
}

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_CALL_ANSWER_H_
