#include "client/core/attach/lone_rank.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/errno_status.h"
#include "proto/base/memfd.h"
#include "proto/base/mutex.h"
#include "proto/shm/job_segment.h"
#include "proto/shm/session_segment.h"
#include "proto/shm/tensor_numbers.h"

namespace ringd::client {
namespace {

// ringd's default.
constexpr std::uint32_t kRingCapacity = 4096;
constexpr std::uint64_t kLeastArenaBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kPageBytes = 4096;

// This process's limit of `resource`; UINT64_MAX: none.
std::uint64_t Limit(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return UINT64_MAX;
  return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

// Whole pages. A file beyond the limit of its size would bring a signal.
std::uint64_t ArenaBytes() {
  const auto memory = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L)) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t wanted = std::max(memory, kLeastArenaBytes);
  const std::uint64_t allowed = std::min(Limit(RLIMIT_FSIZE), Limit(RLIMIT_AS) / 2);
  return std::min(wanted, allowed) / kPageBytes * kPageBytes;
}

struct Shared {
  UniqueFd fd;
  MemoryMapping mapping;
};

absl::StatusOr<Shared> MakeShared(const std::string& name, std::uint64_t bytes) {
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd(name, bytes);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::Map(fd->get(), bytes);
  if (!mapping.ok()) return mapping.status();
  return Shared{*std::move(fd), *std::move(mapping)};
}

class LoneControlChannel final : public ControlChannel {
 public:
  absl::StatusOr<JoinedPlace> Join(const JoinParameters& parameters, Clock::time_point /*deadline*/,
                                   const InterruptCheck& /*is_interrupted*/) override {
    JoinedPlace place;
    place.generation = 1;
    place.combines_locally = true;
    place.operation_timeout_ms = parameters.operation_timeout_ms;
    return place;
  }

  absl::StatusOr<std::vector<RegisteredNumbers>> Register(
      std::uint32_t communicator, std::span<const TensorDescription> tensors,
      Clock::time_point /*deadline*/) override {
    MutexLock lock(mutex_);
    std::vector<RegisteredNumbers> numbers;
    numbers.reserve(tensors.size());
    for (const TensorDescription& tensor : tensors) {
      // As a ringd: equal descriptions have one number, which is held once.
      std::string key = absl::StrCat(communicator, ",", tensor.Key());
      if (const auto known = known_.find(key); known != known_.end()) {
        numbers.push_back({known->second, held_.at(known->second).tensor, 1});
        continue;
      }
      const std::optional<std::uint32_t> number =
          tensors_.Hold(absl::StrCat(communicator, ",", tensor.name));
      if (!number.has_value()) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "tensor '", tensor.name, "': more than ", kMaxLocalTensors,
            " different names at once: give tensors that come again the same name, and give back "
            "those that do not come again (ringd_unregister)"));
      }
      // One rank's descriptions differ from nobody's: one number for all of them.
      numbers.push_back({++registrations_, *number, 1});
      known_.emplace(key, registrations_);
      held_.emplace(registrations_, Held{*number, std::move(key)});
    }
    return numbers;
  }

  absl::Status Unregister(std::span<const std::uint32_t> registrations,
                          Clock::time_point /*deadline*/) override {
    MutexLock lock(mutex_);
    for (const std::uint32_t registration : registrations) {
      const auto found = held_.find(registration);
      if (found == held_.end()) continue;
      tensors_.Release(found->second.tensor);
      known_.erase(found->second.key);
      held_.erase(found);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> DescribeMismatch(std::uint32_t /*communicator*/,
                                               std::uint32_t /*tensor*/,
                                               std::span<const std::uint32_t> /*metas*/,
                                               Clock::time_point /*deadline*/) override {
    return absl::InternalError("one rank's descriptions of a tensor can't differ");
  }

  // They all go the way of the rank's own memory.
  absl::StatusOr<MadeCommunicator> CreateCommunicator(
      const AskedCommunicator& asked, Clock::time_point /*deadline*/,
      const InterruptCheck& /*is_interrupted*/) override {
    MutexLock lock(mutex_);
    for (const auto& [number, name] : communicators_) {
      if (name != asked.name) continue;
      return absl::AlreadyExistsError(absl::StrCat("communicator '", name,
                                                   "': there is one of this name, until it has "
                                                   "been destroyed"));
    }
    if (communicators_.size() >= kMostCommunicators) {
      return absl::ResourceExhaustedError(
          absl::StrCat("communicator '", asked.name, "': the job has ", kMostCommunicators,
                       ", as many as are possible: destroy those that are not needed"));
    }
    const std::uint32_t number = ++last_communicator_;
    communicators_.emplace(number, asked.name);
    return MadeCommunicator{.id = number, .number = number};
  }

  absl::StatusOr<OpenedDevice> OpenDevice(const AskedDevice& /*asked*/,
                                          Clock::time_point /*deadline*/) override {
    return absl::FailedPreconditionError(
        "this rank is alone, without a ringd: that one reduces tensors in device memory");
  }

  absl::StatusOr<AgreedDevices> AgreeOnDevices(std::uint32_t /*communicator*/,
                                               Clock::time_point /*deadline*/,
                                               const InterruptCheck& /*is_interrupted*/) override {
    return AgreedDevices();
  }

  absl::Status DestroyCommunicator(std::uint32_t id, Clock::time_point /*deadline*/) override {
    MutexLock lock(mutex_);
    communicators_.erase(id);
    return absl::OkStatus();
  }

  absl::Status Leave(absl::string_view /*failure*/, Clock::time_point /*deadline*/) override {
    return absl::OkStatus();
  }

  std::uint64_t Ping() override { return 0; }

 private:
  // As ringd's (ringd.h).
  static constexpr std::size_t kMostCommunicators = 1024;
  struct Held {
    std::uint32_t tensor;
    std::string key;
  };

  Mutex mutex_;
  std::uint32_t registrations_ ABSL_GUARDED_BY(mutex_) = 0;
  TensorNumbers tensors_ ABSL_GUARDED_BY(mutex_){kMaxLocalTensors};  // by communicator and name
  std::unordered_map<std::string, std::uint32_t> known_ ABSL_GUARDED_BY(mutex_);  // by description
  std::unordered_map<std::uint32_t, Held> held_ ABSL_GUARDED_BY(mutex_);          // by registration
  std::map<std::uint32_t, std::string> communicators_ ABSL_GUARDED_BY(mutex_);    // names
  std::uint32_t last_communicator_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<LoneRank> MakeLoneRank() {
  LoneRank lone;
  Attachment& attachment = lone.attachment;
  attachment.layout = {kRingCapacity, kRingCapacity};
  const std::uint64_t arena_bytes = ArenaBytes();
  absl::StatusOr<Shared> segment = MakeShared("ringd-session", attachment.layout.segment_bytes());
  if (!segment.ok()) return segment.status();
  InitializeSessionSegment(segment->mapping.data(), attachment.layout, 1, arena_bytes);
  attachment.segment = std::move(segment->mapping);
  absl::StatusOr<Shared> arena = MakeShared("ringd-arena", arena_bytes);
  if (!arena.ok()) return arena.status();
  attachment.arena = std::move(arena->mapping);

  const std::int32_t rank = 0;
  lone.notice = {JobSegmentView::SegmentBytes(1), 1, 0, 0, 0};
  absl::StatusOr<Shared> job = MakeShared("ringd-job", lone.notice.segment_bytes);
  if (!job.ok()) return job.status();
  InitializeJobSegment(job->mapping.data(), std::span(&rank, 1));
  lone.job_segment = std::move(job->fd);

  attachment.lifeline = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  attachment.engine_wakeup = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!attachment.lifeline.valid() || !attachment.engine_wakeup.valid()) {
    return ErrnoStatus(errno, "eventfd");
  }
  lone.control = std::make_unique<LoneControlChannel>();
  return lone;
}

}  // namespace ringd::client
