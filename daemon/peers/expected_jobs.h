// Which nodes may open a control stream to here: those that have the key of a job that waits for
// them.
#ifndef RINGD_DAEMON_PEERS_EXPECTED_JOBS_H_
#define RINGD_DAEMON_PEERS_EXPECTED_JOBS_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "daemon/door/door_reception.h"
#include "daemon/peers/peer_network.h"
#include "proto/base/mutex.h"

namespace ringd {

// The door's reception for control streams.
//
// Jobs of several users may have one id, and their ranks may come in any order. So a node whose key
// fits none of the jobs of that id is refused for good only if one of them is its user's, as it
// says; else its own may still come.
//
// Thread safety: any thread. `admit` is called on the door's thread, `refused` too, both without a
//   lock.
// Trust: who is admitted has the job's key. The number of connections that one user's jobs can have
//   is bounded, since whoever knows a job's secret can open them.
class ExpectedJobs final : public DoorReception {
 public:
  // Of one user's jobs together, at a time.
  static constexpr std::size_t kMostConnections = 1024;
  // Refusals of which a job is told: anybody who knows its id can be refused, as often as he likes.
  static constexpr std::uint32_t kMostRefusals = 64;
  // Of one user's jobs of one id, with which a node's proof is compared.
  static constexpr std::size_t kMostKeysOfUser = 16;

  struct Handlers {
    // One of the job's nodes has come. Call Release(user) when the connection has ended.
    std::function<void(ExpectationId, uid_t user, DoorArrival)> admit;
    std::function<void(ExpectationId, const RefusedNode&)> refused;
  };
  explicit ExpectedJobs(Handlers handlers) : handlers_(std::move(handlers)) {}

  ExpectationId Add(ExpectedJob job) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(ExpectationId id) ABSL_LOCKS_EXCLUDED(mutex_);
  // While it drains, a node that finds no job is told that none will come.
  void SetDraining(bool draining) ABSL_LOCKS_EXCLUDED(mutex_);
  void Release(uid_t user) ABSL_LOCKS_EXCLUDED(mutex_);

  void Consider(const DoorHello& hello, DoorConsideration& answer) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRefused(const DoorHello& hello, DoorVerdict verdict, const std::string& from) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Admit(DoorArrival arrival) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Tag = std::array<std::byte, 28>;
  struct Entry {
    ExpectationId id;
    ExpectedJob job;
    mutable std::uint32_t refusals = 0;  // told
  };
  // Those of the subject's job id, its user's first.
  std::vector<const Entry*> Candidates(const ControlSubject& subject) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Handlers handlers_;
  Mutex mutex_;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  // Any user's engines add and remove thousands, while strangers ask for some job's.
  std::map<Tag, std::map<std::uint64_t, Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Tag> tags_ ABSL_GUARDED_BY(mutex_);  // by id
  std::map<uid_t, std::size_t> connections_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_EXPECTED_JOBS_H_
