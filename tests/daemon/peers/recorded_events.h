// Keeps what a PeerNetwork reports, for tests to wait for.
#ifndef RINGD_TESTS_DAEMON_PEERS_RECORDED_EVENTS_H_
#define RINGD_TESTS_DAEMON_PEERS_RECORDED_EVENTS_H_

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/peers/peer_network.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

struct StreamRecord {
  ExpectationId job;
  std::string from;
  int connected = 0;
  bool is_here = false;
  int disconnected = 0;
  bool after_disconnect = false;  // something came after the last event
  absl::Status why;
  Clock::time_point ended;
  std::vector<v1::NodeMessage> from_node;
  std::vector<v1::CoordinatorMessage> from_coordinator;
};

// Thread safety: any thread.
class RecordedEvents : public PeerEvents {
 public:
  void OnNodeConnected(StreamId stream, ExpectationId job, std::string from) override {
    Change(stream, [&](StreamRecord& record) {
      ++record.connected;
      record.job = job;
      record.from = std::move(from);
    });
  }
  void OnNodeRefused(ExpectationId job, RefusedNode node) override {
    MutexLock lock(mutex_);
    refused_.emplace_back(job, std::move(node));
    changed_.NotifyAll();
  }
  void OnCoordinatorIsHere(StreamId stream) override {
    Change(stream, [](StreamRecord& record) { record.is_here = true; });
    End(stream, absl::OkStatus());
  }
  void OnNodeMessage(StreamId stream, v1::NodeMessage message, MessageHold hold) override {
    Change(stream, [&](StreamRecord& record) { record.from_node.push_back(std::move(message)); });
    const MutexLock lock(mutex_);
    if (keeps_holds_) holds_.push_back(std::move(hold));
  }
  void OnNodeDisconnected(StreamId stream, absl::Status why) override { End(stream, why); }
  void OnCoordinatorMessage(StreamId stream, v1::CoordinatorMessage message,
                            MessageHold /*hold*/) override {
    Change(stream,
           [&](StreamRecord& record) { record.from_coordinator.push_back(std::move(message)); });
  }
  void OnCoordinatorDisconnected(StreamId stream, absl::Status why) override { End(stream, why); }

  // From now on messages of nodes are not dealt with, until they are.
  void KeepHolds() {
    MutexLock lock(mutex_);
    keeps_holds_ = true;
  }
  void DropHolds() {
    std::vector<MessageHold> dropped;
    MutexLock lock(mutex_);
    keeps_holds_ = false;
    dropped.swap(holds_);
  }

  using Records = std::map<StreamId, StreamRecord>;

  // True if `condition` became true before the timeout.
  bool WaitFor(const std::function<bool(const Records&)>& condition,
               std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    const Clock::time_point deadline = Clock::now() + timeout;
    MutexLock lock(mutex_);
    while (!condition(records_)) {
      if (!changed_.WaitUntil(mutex_, deadline) && Clock::now() >= deadline) {
        return condition(records_);
      }
    }
    return true;
  }

  StreamRecord Get(StreamId stream) {
    MutexLock lock(mutex_);
    return records_[stream];
  }
  std::vector<std::pair<ExpectationId, RefusedNode>> refused() {
    MutexLock lock(mutex_);
    return refused_;
  }
  Records All() {
    MutexLock lock(mutex_);
    return records_;
  }

 private:
  void Change(StreamId stream, const std::function<void(StreamRecord&)>& change) {
    MutexLock lock(mutex_);
    StreamRecord& record = records_[stream];
    if (record.disconnected > 0) record.after_disconnect = true;
    change(record);
    changed_.NotifyAll();
  }
  void End(StreamId stream, absl::Status why) {
    Change(stream, [&](StreamRecord& record) {
      ++record.disconnected;
      record.why = std::move(why);
      record.ended = Clock::now();
    });
  }

  Mutex mutex_;
  CondVar changed_;
  Records records_ ABSL_GUARDED_BY(mutex_);
  bool keeps_holds_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<MessageHold> holds_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<ExpectationId, RefusedNode>> refused_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_PEERS_RECORDED_EVENTS_H_
