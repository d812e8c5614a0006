#include "daemon/jobs/plans/plan_store.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "proto/base/errno_status.h"
#include "proto/base/read_file.h"
#include "proto/base/unique_fd.h"
#include "proto/base/write_all.h"

namespace ringd {
namespace {

constexpr std::size_t kMaxUnmeasured = 256;

std::string FileIn(const std::string& folder) { return absl::StrCat(folder, "/plans.json"); }

bool IsFresh(std::int64_t measured, std::int64_t now) {
  return measured > now - PlanStore::kMeasuredLasts.count() && measured <= now;
}

absl::StatusOr<ParsedState> ReadState(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, PlanStore::kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return ParsedState();
  if (!text.ok()) return text.status();
  absl::StatusOr<ParsedState> parsed = ParseState(*text);
  if (parsed.ok()) return parsed;
  return absl::Status(parsed.status().code(), absl::StrCat(path, ": ", parsed.status().message()));
}

absl::Status ReplaceFile(const std::string& folder, const std::string& text) {
  if (::mkdir(folder.c_str(), 0750) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make ", folder));
  }
  const std::string path = FileIn(folder);
  const std::string draft = absl::StrCat(path, ".", ::getpid());
  // Without fsync the name may be on the disk before the bytes are.
  const UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  int error = file.valid() ? WriteAll(file.get(), text) : errno;
  if (error == 0 && (::fsync(file.get()) != 0 || std::rename(draft.c_str(), path.c_str()) != 0)) {
    error = errno;
  }
  if (error != 0) {
    ::unlink(draft.c_str());
    return ErrnoStatus(error, absl::StrCat("write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

PlanStore::PlanStore(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  absl::StatusOr<ParsedState> read = ReadState(FileIn(folder_));
  if (!read.ok()) {
    LogWarning(
        absl::StrCat("what was learned about earlier jobs is not used: ", read.status().message()));
    return;
  }
  if (!read->left_out.empty()) {
    LogWarning(absl::StrCat("a part of what was learned about earlier jobs is not used: ",
                            FileIn(folder_), ": entries that can't be: ", read->left_out.size(),
                            "; of the first: ", read->left_out.front()));
  }
  MutexLock lock(mutex_);
  state_ = std::move(read->state);
  TrimLocked();
}

PlanStore::PlanStore(KeptState initial, PlanKeeper* keeper)
    : keeper_(keeper), state_(std::move(initial)) {
  MutexLock lock(mutex_);
  TrimLocked();
}

PlanStore::~PlanStore() {
  std::thread writer;
  {
    MutexLock lock(mutex_);
    writer = std::move(writer_);
  }
  if (writer.joinable()) writer.join();
}

std::vector<std::shared_ptr<const KeptPlan>> PlanStore::Find(const std::string& nodes) const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<const KeptPlan>> found;
  for (const StoredPlan& stored : state_.plans) {
    if (stored.nodes == nodes) found.push_back(stored.plan);
  }
  return found;
}

void PlanStore::Put(const std::string& nodes, KeptPlan plan) {
  StoredPlan stored{nodes, TensorsKey(plan), nullptr};
  stored.plan = std::make_shared<const KeptPlan>(std::move(plan));
  {
    MutexLock lock(mutex_);
    ReplaceLocked(stored);
    KeepLocked();
  }
  if (keeper_ != nullptr) keeper_->Keep({{std::move(stored)}, {}, {}});
}

void PlanStore::ReplaceLocked(StoredPlan plan) {
  std::erase_if(state_.plans, [&](const StoredPlan& other) {
    return other.nodes == plan.nodes && other.tensors == plan.tensors;
  });
  state_.plans.insert(state_.plans.begin(), std::move(plan));
}

std::optional<KnownLinks> PlanStore::FindLinks(const std::vector<std::string>& names,
                                               std::int64_t unix_seconds) const {
  KnownLinks known{LinkMatrix(names.size()), unix_seconds};
  std::size_t missing = names.size() * (names.size() - 1);
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
  MutexLock lock(mutex_);
  for (const StoredLink& stored : state_.links) {
    const auto from = places.find(stored.from);
    const auto to = places.find(stored.to);
    const bool fresh = IsFresh(stored.unix_seconds, unix_seconds);
    if (!fresh || from == places.end() || to == places.end()) continue;
    MeasuredLink& link = known.links.at(from->second, to->second);
    if (link.bytes_per_second > 0) continue;
    link = stored.link;
    known.unix_seconds = std::min(known.unix_seconds, stored.unix_seconds);
    --missing;
  }
  if (missing > 0) return std::nullopt;
  return known;
}

void PlanStore::PutLinks(const std::vector<std::string>& names, const LinkMatrix& links,
                         std::int64_t unix_seconds) {
  std::vector<StoredLink> measured;
  for (std::size_t from = 0; from < names.size(); ++from) {
    for (std::size_t to = 0; to < names.size(); ++to) {
      if (from == to) continue;
      measured.push_back({names[from], names[to], links.at(from, to), unix_seconds});
    }
  }
  {
    MutexLock lock(mutex_);
    ReplaceLocked(measured);
    KeepLocked();
  }
  if (keeper_ != nullptr) keeper_->Keep({{}, std::move(measured), {}});
}

void PlanStore::ReplaceLocked(std::vector<StoredLink> links) {
  std::set<std::pair<std::string, std::string>> known;
  std::vector<StoredLink> all;
  for (std::vector<StoredLink>* const part : {&links, &state_.links}) {
    for (StoredLink& link : *part) {
      if (known.emplace(link.from, link.to).second) all.push_back(std::move(link));
    }
  }
  state_.links = std::move(all);
}

std::optional<StoredTrial> PlanStore::FindTrial(const std::vector<std::string>& names,
                                                std::int64_t unix_seconds) const {
  MutexLock lock(mutex_);
  for (const StoredTrial& stored : state_.trials) {
    if (stored.nodes == names && IsFresh(stored.unix_seconds, unix_seconds)) return stored;
  }
  return std::nullopt;
}

void PlanStore::PutTrial(StoredTrial trial) {
  {
    MutexLock lock(mutex_);
    ReplaceLocked(trial);
    KeepLocked();
  }
  if (keeper_ != nullptr) keeper_->Keep({{}, {}, {std::move(trial)}});
}

void PlanStore::ReplaceLocked(StoredTrial trial) {
  std::erase_if(state_.trials,
                [&](const StoredTrial& other) { return other.nodes == trial.nodes; });
  state_.trials.insert(state_.trials.begin(), std::move(trial));
}

void PlanStore::NoteUnmeasured(const std::vector<std::string>& names, std::int64_t unix_seconds) {
  {
    MutexLock lock(mutex_);
    if (unmeasured_.size() >= kMaxUnmeasured) unmeasured_.clear();
    unmeasured_[names] = unix_seconds;
  }
  if (keeper_ != nullptr) keeper_->KeepUnmeasured(names, unix_seconds);
}

KeptState PlanStore::ForUser(uid_t uid) const {
  KeptState state;
  {
    MutexLock lock(mutex_);
    state = state_;
  }
  std::erase_if(state.plans, [uid](const StoredPlan& plan) { return !IsKeyOf(uid, plan.nodes); });
  return Bounded(std::move(state), kMostPassedBytes);
}

void PlanStore::Merge(KeptState changed, uid_t uid) {
  std::erase_if(changed.plans, [uid](const StoredPlan& plan) { return !IsKeyOf(uid, plan.nodes); });
  if (changed.plans.empty() && changed.trials.empty() && changed.links.empty()) return;
  for (StoredPlan& plan : changed.plans) plan.tensors = TensorsKey(*plan.plan);
  MutexLock lock(mutex_);
  // What comes first is to stand first.
  for (auto plan = changed.plans.rbegin(); plan != changed.plans.rend(); ++plan) {
    ReplaceLocked(std::move(*plan));
  }
  for (auto trial = changed.trials.rbegin(); trial != changed.trials.rend(); ++trial) {
    ReplaceLocked(std::move(*trial));
  }
  // It looks at all links that there are.
  if (!changed.links.empty()) ReplaceLocked(std::move(changed.links));
  KeepLocked();
}

std::map<std::vector<std::string>, std::int64_t> PlanStore::Unmeasured() const {
  MutexLock lock(mutex_);
  return unmeasured_;
}

bool PlanStore::IsWorthMeasuring(const std::vector<std::string>& names,
                                 std::int64_t unix_seconds) const {
  MutexLock lock(mutex_);
  const auto found = unmeasured_.find(names);
  // One of a clock that was ahead, or of an engine that says anything, is worth nothing.
  return found == unmeasured_.end() || found->second > unix_seconds ||
         found->second <= unix_seconds - kRetryAfter.count();
}

void PlanStore::KeepLocked() {
  TrimLocked();
  if (folder_.empty()) return;
  dirty_ = true;
  if (writing_) return;
  if (writer_.joinable()) writer_.join();  // it is past its last look at our members
  writing_ = true;
  try {
    writer_ = std::thread([this] { Write(); });
    ::pthread_setname_np(writer_.native_handle(), "ringd-plans");
  } catch (const std::system_error&) {
    writing_ = false;  // there are no threads left; it stays dirty for the next time
  }
}

void PlanStore::TrimLocked() {
  std::size_t tensors = 0;
  std::size_t kept = 0;
  for (; kept < std::min(state_.plans.size(), kMaxPlans); ++kept) {
    tensors += TensorCount(*state_.plans[kept].plan);
    if (tensors > kMaxTensors) break;
  }
  state_.plans.resize(kept);
  state_.links.resize(std::min(state_.links.size(), kMaxLinks));
  state_.trials.resize(std::min(state_.trials.size(), kMaxTrials));
}

void PlanStore::Write() {
  for (;;) {
    KeptState state;
    {
      MutexLock lock(mutex_);
      if (!std::exchange(dirty_, false)) {
        writing_ = false;
        return;
      }
      state = state_;
    }
    const absl::Status written = ReplaceFile(folder_, FormatState(state));
    MutexLock lock(mutex_);
    if (!written.ok() && !std::exchange(has_complained_, true)) {
      LogWarning(
          absl::StrCat("what is learned about jobs is not kept (state_dir): ", written.message()));
    }
  }
}

std::string NodesKey(uid_t uid, const Membership& membership) {
  std::string text;
  for (const MemberNode& node : membership.nodes) {
    absl::StrAppend(&text, ";", node.name.size(), ":", node.name, " x ", node.ranks.size());
  }
  return absl::StrCat(uid, "-", HashText(text));
}

bool IsKeyOf(uid_t uid, absl::string_view nodes_key) {
  return absl::StartsWith(nodes_key, absl::StrCat(uid, "-"));
}

}  // namespace ringd
