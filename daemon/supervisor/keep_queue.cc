#include "daemon/supervisor/keep_queue.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/thread_priority.h"

namespace ringd {
namespace {

// Nodes between which links are measured, and the longest name of one.
constexpr int kMostUnmeasured = 32;
constexpr std::size_t kMostNameBytes = 256;
// A wait has a deadline; nothing is due then.
constexpr auto kLongestSleep = std::chrono::minutes(1);

absl::Status NoState(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("wants to keep what is none: ", what));
}

absl::Status CheckLengths(const v1::EngineKeep& keep) {
  if (keep.state().size() > kMostPassedBytes) return NoState("it is too long");
  // All engines to come are told of them.
  if (keep.unmeasured_size() > kMostUnmeasured ||
      std::any_of(keep.unmeasured().begin(), keep.unmeasured().end(),
                  [](const std::string& name) { return name.size() > kMostNameBytes; })) {
    return absl::InvalidArgumentError("names nodes that can't be measured");
  }
  return absl::OkStatus();
}

}  // namespace

KeepQueue::KeepQueue(PlanStore* plans)
    : plans_(plans), thread_([this] {
        ::pthread_setname_np(::pthread_self(), "ringd-keeps");
        ServeBesideEngine();
        Run();
      }) {}

KeepQueue::~KeepQueue() {
  {
    const MutexLock lock(mutex_);
    end_at_ = Clock::now() + kGoodbye;
  }
  changed_.NotifyOne();
  thread_.join();
}

bool KeepQueue::Add(uid_t user, std::uint64_t engine, v1::EngineKeep keep, Refuse refuse) {
  if (const absl::Status status = CheckLengths(keep); !status.ok()) {
    refuse(status);
    return true;
  }
  Entry entry{user, engine, keep.ByteSizeLong() + kEntryBytes, std::move(keep), std::move(refuse)};
  {
    const MutexLock lock(mutex_);
    const auto before = users_.find(user);
    if (before != users_.end()) {
      const auto own = before->second.of_engine.find(engine);
      const std::size_t of_engine = own == before->second.of_engine.end() ? 0 : own->second;
      if (of_engine + entry.bytes > kMostBytesOfEngine ||
          before->second.bytes + entry.bytes > kMostBytesOfUser) {
        return false;
      }
    }
    User& of_user = users_[user];
    of_user.bytes += entry.bytes;
    of_user.of_engine[engine] += entry.bytes;
    of_user.waiting.push_back(std::move(entry));
  }
  changed_.NotifyOne();
  return true;
}

KeepQueue::Entry KeepQueue::TakeLocked() {
  auto next = users_.upper_bound(last_user_);
  if (next == users_.end()) next = users_.begin();
  last_user_ = next->first;
  User& user = next->second;
  Entry entry = std::move(user.waiting.front());
  user.waiting.pop_front();
  user.bytes -= entry.bytes;
  const auto engine = user.of_engine.find(entry.engine);
  engine->second -= entry.bytes;
  if (engine->second == 0) user.of_engine.erase(engine);
  if (user.waiting.empty()) users_.erase(next);
  return entry;
}

std::optional<KeepQueue::Entry> KeepQueue::Next() {
  MutexLock lock(mutex_);
  for (;;) {
    const Clock::time_point now = Clock::now();
    if (end_at_.has_value() && (users_.empty() || now >= *end_at_)) return std::nullopt;
    const bool rests = !end_at_.has_value() && now < rests_until_;
    if (!users_.empty() && !rests) return TakeLocked();
    changed_.WaitUntil(mutex_, rests ? rests_until_ : now + kLongestSleep);
  }
}

absl::Status KeepQueue::Merge(const Entry& entry) {
  const v1::EngineKeep& keep = entry.keep;
  absl::StatusOr<ParsedState> changed = ParseState(keep.state());
  if (!changed.ok()) return NoState(changed.status().message());
  plans_->Merge(std::move(changed->state), entry.user);
  if (keep.unmeasured().empty()) return absl::OkStatus();
  plans_->NoteUnmeasured({keep.unmeasured().begin(), keep.unmeasured().end()}, keep.unix_seconds());
  return absl::OkStatus();
}

void KeepQueue::Run() {
  while (std::optional<Entry> entry = Next()) {
    const Clock::time_point began = Clock::now();
    if (const absl::Status status = Merge(*entry); !status.ok()) entry->refuse(status);
    entry.reset();
    const Clock::time_point now = Clock::now();
    const MutexLock lock(mutex_);
    rests_until_ = now + kRests * (now - began);
  }
}

}  // namespace ringd
