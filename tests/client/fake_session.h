// One client attached to a FakeRingd: the daemon's end of its memory, and a thread that executes.
#ifndef RINGD_TESTS_CLIENT_FAKE_SESSION_H_
#define RINGD_TESTS_CLIENT_FAKE_SESSION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/shm/completion.h"
#include "proto/shm/session_segment.h"
#include "proto/shm/submission.h"
#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"

namespace ringd {

// For what must not take long.
inline Clock::time_point Soon() { return Clock::now() + std::chrono::seconds(20); }

// The value, or the end of the test.
template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

struct FakeTensor {
  CollectiveKind kind;
  DataType data_type;
  bool is_root;
};

// What the sessions of one FakeRingd have in common.
struct FakeOperations {
  std::atomic<bool> holding{false};
  std::atomic<int> wakeups{0};

  mutable std::mutex mutex;  // guards what follows
  absl::Status status;       // not OK: how operations end
  std::map<std::uint32_t, FakeTensor> tensors;
  std::vector<Submission> seen;
};

// Thread safety: any method from any thread; Stop once.
// Ownership: owns the memory, the lifeline and the thread; `operations` must outlive it.
class FakeSession {
 public:
  FakeSession(UniqueFd lifeline, const SessionSegmentLayout& layout, std::uint64_t arena_bytes,
              FakeOperations* operations);
  ~FakeSession();

  int lifeline() const { return lifeline_.get(); }
  // Fills in the reply's sizes, and sends it with the session's descriptors and the client's end of
  // gRPC's connection. The client may act before this returns.
  void Answer(AttachReply reply, int grpc_fd);

  // As if the engine had completed it; Ring tells the client's sleepers.
  void Push(const CompletionRecord& record);
  void Ring() { view_.header->completions.Ring(); }
  // Wakes the engine.
  void Wake();
  // Ends the thread.
  void Stop();
  void CloseLifeline() { lifeline_.Reset(); }

 private:
  void Run();
  // Until all of a source that comes in pieces is there.
  void AwaitSource(const Submission& submission);
  void Execute(const Submission& submission);
  void Compute(const Submission& submission, const FakeTensor& tensor, std::uint64_t bytes);

  const SessionSegmentLayout layout_;
  FakeOperations* const operations_;
  UniqueFd lifeline_;
  UniqueFd segment_fd_;
  UniqueFd arena_fd_;
  MemoryMapping segment_;
  MemoryMapping arena_;
  UniqueFd wakeup_;
  SessionSegmentView view_;
  RingConsumer<Submission> submissions_;
  std::mutex completion_mutex_;  // guards completions_
  RingProducer<CompletionRecord> completions_;
  std::vector<Submission> held_;
  std::uint32_t error_versions_[kErrorTextSlots] = {};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_CLIENT_FAKE_SESSION_H_
