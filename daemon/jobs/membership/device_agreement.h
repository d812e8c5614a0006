// Whether the ranks of a communicator reduce tensors on GPUs by NCCL or by the host path.
#ifndef RINGD_DAEMON_JOBS_MEMBERSHIP_DEVICE_AGREEMENT_H_
#define RINGD_DAEMON_JOBS_MEMBERSHIP_DEVICE_AGREEMENT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/base/clock.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

// At most one hour, whatever the start timeout is.
inline constexpr std::chrono::hours kLongestAgreement{1};
// As NcclIdBytes, of which only those know who have GPUs.
inline constexpr std::size_t kNcclIdBytes = 128;
// Of RankDevice::kept.
inline constexpr int kMostKept = 16;
// Of RankDevice::why.
inline constexpr std::size_t kMostDeviceWhyBytes = 1024;

struct AgreedDevices {
  bool goes_by_host = false;
  // Which rank, where, can't use NCCL, and why. Or, if it goes by NCCL, which ranks had said
  // nothing when the time was over; empty: none.
  std::string why;
};

// What all nodes have heard of the ranks' GPUs (RankDevice), and the ranks of this node that wait
// for it. If one rank of a communicator can't use NCCL, none of its ranks uses it. All nodes hear
// the same, and a rank's word on NCCL is never taken back. So all ranks get the same answer, unless
// the time is over for one of them before all have said something.
//
// Thread safety: none; the progress thread owns it.
// Invariant: each ask is answered once, unless this is destroyed before.
class DeviceAgreement {
 public:
  using Done = std::function<void(const absl::Status&, const AgreedDevices&)>;
  struct Ask {
    int rank = 0;            // whose it is
    std::vector<int> ranks;  // of the communicator
    Clock::time_point since;
    Clock::time_point until;
    Done done;
  };
  // To a rank of this node that has been waiting for long.
  using Warn = std::function<void(int rank, const std::string& text)>;

  // `name`: how to name a rank of the job: "rank 1, pid 4711 on node-b".
  explicit DeviceAgreement(std::function<std::string(int rank)> name) : name_(std::move(name)) {}

  // Calls ask.done, perhaps at once.
  //   kResourceExhausted: the rank has kMostAsks under way.
  void Add(Ask ask);
  static constexpr std::ptrdiff_t kMostAsks = 64;

  void OnWord(const v1::RankDevice& device);
  // Whether the rank has told that it has this NCCL communicator still, after so many operations.
  bool HasKept(int rank, absl::string_view unique_id, std::uint64_t launched) const;
  // The rank has left: nobody waits for its word, and it waits for nobody's.
  void OnLeft(int rank);
  // Answers those whose time is over, and warns those that have waited for another `warning`; 0:
  // none. They wait for `instead`, if it is not empty, and not for ranks that have said nothing.
  void Tick(Clock::time_point now, std::chrono::nanoseconds warning, const std::string& instead,
            const Warn& warn);
  void Fail(const absl::Status& cause);

  bool anyone_waits() const noexcept { return !asks_.empty(); }

 private:
  struct Waiting {
    Ask ask;
    Clock::time_point warned_at;
  };

  // The first of them that can't use NCCL; -1: there is none so far.
  int FirstByHost(const std::vector<int>& ranks) const;
  std::vector<int> Silent(const std::vector<int>& ranks) const;
  std::string Describe(const std::vector<int>& silent) const;
  // False: it has to wait.
  bool IsDecided(const Ask& ask, bool is_late, AgreedDevices& reply) const;
  void AnswerDecided(const std::function<bool(const Ask&)>& is_late);
  // Takes out those that fit; the callbacks may ask for more.
  void Answer(const std::function<bool(const Ask&, AgreedDevices&)>& fits,
              const absl::Status& status);

  const std::function<std::string(int rank)> name_;
  std::map<int, v1::RankDevice> words_;
  std::set<int> left_;
  std::vector<Waiting> asks_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEMBERSHIP_DEVICE_AGREEMENT_H_
