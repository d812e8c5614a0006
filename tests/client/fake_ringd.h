// A ringd for tests of the client library: the real handshake, descriptors, rings and calls, in a
// few threads of the test's own process, without jobs, schedule or network.
//
// An all-reduce of float32 doubles every element, as if two equal ranks had been summed; other
// types are copied. A broadcast to a rank that is not the root fills the destination with
// kBroadcastByte.
#ifndef RINGD_TESTS_CLIENT_FAKE_RINGD_H_
#define RINGD_TESTS_CLIENT_FAKE_RINGD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/attach/handshake.h"
#include "proto/shm/submission.h"
#include "tests/client/rank_exchange_links.h"

namespace ringd {

inline constexpr std::byte kBroadcastByte{0x5a};

struct FakeRingdSettings {
  std::uint32_t attach_version = kAttachVersion;
  std::uint32_t submission_capacity = 64;
  std::uint64_t arena_bytes = 16 << 20;
  // Not OK: attaching is refused with it.
  absl::Status refusal;
  // Not OK: Join fails with it.
  absl::Status join_failure;
  // Join does not answer before the connection ends.
  bool join_hangs = false;
  std::chrono::milliseconds leave_takes{0};
  // Not null: the first session is told, before it joins, of the rank exchange of this node as its
  // first member. Must outlive the FakeRingd.
  RankExchangeLinks::Node* rank_exchange = nullptr;
};

// What ringd has been told in Join.
struct SeenJoin {
  std::string job_id;
  std::int32_t rank = -1;
  std::int32_t size = -1;
  std::int32_t local_rank = -1;
  std::int32_t local_size = -1;
  std::string rendezvous;
  std::string secret;
  std::uint32_t start_timeout_ms = 0;
  std::uint32_t operation_timeout_ms = 0;
  std::string fusion;
  std::uint32_t weight = 0;
};

// Thread safety: any method from any thread.
class FakeRingd {
 public:
  explicit FakeRingd(const FakeRingdSettings& settings = {});
  ~FakeRingd();
  FakeRingd(const FakeRingd&) = delete;
  FakeRingd& operator=(const FakeRingd&) = delete;

  const std::string& socket() const;

  // From now on submissions are taken but not completed ...
  void Hold();
  // ... until now: they are completed, the youngest first.
  void Release();
  // From now on operations end with `status` and don't touch their memory; OkStatus ends that.
  void FailOperations(const absl::Status& status);
  // Pushes a completion of the first session as it stands, true or not.
  void PushCompletion(std::uint64_t sequence, std::int32_t status);

  // To every session. Unknown kinds may be sent, too.
  void SendNotice(std::uint32_t kind, const std::string& text);
  void SendNotice(NoticeKind kind, const std::string& text) {
    SendNotice(static_cast<std::uint32_t>(kind), text);
  }
  // Sends bytes that need not be a notice.
  void SendRaw(const std::string& bytes);
  // Closes every connection, as the kernel does when a process is killed. The engines stop.
  void Die();

  SeenJoin last_join() const;
  int join_calls() const;
  int register_calls() const;
  int leave_calls() const;
  std::string last_failure() const;  // of the last of these
  std::vector<Submission> submissions() const;
  // How often an engine was woken by its eventfd.
  int wakeups() const;
  // How many sessions' lifelines are still open at the client's end.
  int live_sessions() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_CLIENT_FAKE_RINGD_H_
