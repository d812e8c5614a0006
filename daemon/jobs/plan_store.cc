#include "daemon/jobs/plan_store.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

std::string FileIn(const std::string& folder) { return absl::StrCat(folder, "/plans.json"); }

absl::StatusOr<std::vector<StoredPlan>> ReadPlans(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) return std::vector<StoredPlan>();
  if (error) return absl::UnavailableError(error.message());
  if (size > PlanStore::kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat("it has ", size, " bytes"));
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return absl::UnavailableError("it can't be read");
  return ParsePlans(text);
}

absl::Status ReplaceFile(const std::string& folder, const std::string& text) {
  if (::mkdir(folder.c_str(), 0750) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make ", folder));
  }
  const std::string path = FileIn(folder);
  const std::string draft = absl::StrCat(path, ".", ::getpid());
  std::ofstream file(draft, std::ios::trunc | std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(draft.c_str());
    return ErrnoStatus(error, absl::StrCat("write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

PlanStore::PlanStore(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  absl::StatusOr<std::vector<StoredPlan>> plans = ReadPlans(FileIn(folder_));
  if (!plans.ok()) {
    LogWarning(absl::StrCat("what was learned about earlier jobs is not used: ", FileIn(folder_),
                            ": ", plans.status().message()));
    return;
  }
  MutexLock lock(mutex_);
  plans_ = *std::move(plans);
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
  for (const StoredPlan& stored : plans_) {
    if (stored.nodes == nodes) found.push_back(stored.plan);
  }
  return found;
}

void PlanStore::Put(const std::string& nodes, KeptPlan plan) {
  StoredPlan stored{nodes, TensorsKey(plan), nullptr};
  stored.plan = std::make_shared<const KeptPlan>(std::move(plan));
  MutexLock lock(mutex_);
  std::erase_if(plans_, [&](const StoredPlan& other) {
    return other.nodes == stored.nodes && other.tensors == stored.tensors;
  });
  plans_.insert(plans_.begin(), std::move(stored));
  TrimLocked();
  if (folder_.empty()) return;
  dirty_ = true;
  if (writing_) return;
  if (writer_.joinable()) writer_.join();  // it is past its last look at our members
  writing_ = true;
  writer_ = std::thread([this] { Write(); });
  ::pthread_setname_np(writer_.native_handle(), "ringd-plans");
}

void PlanStore::TrimLocked() {
  std::size_t tensors = 0;
  std::size_t kept = 0;
  for (; kept < std::min(plans_.size(), kMaxPlans); ++kept) {
    tensors += TensorCount(*plans_[kept].plan);
    if (tensors > kMaxTensors) break;
  }
  plans_.resize(kept);
}

void PlanStore::Write() {
  for (;;) {
    std::vector<StoredPlan> plans;
    {
      MutexLock lock(mutex_);
      if (!std::exchange(dirty_, false)) {
        writing_ = false;
        return;
      }
      plans = plans_;
    }
    const absl::Status written = ReplaceFile(folder_, FormatPlans(plans));
    MutexLock lock(mutex_);
    if (!written.ok() && !std::exchange(has_complained_, true)) {
      LogWarning(
          absl::StrCat("what is learned about jobs is not kept (state_dir): ", written.message()));
    }
  }
}

std::string NodesKey(uid_t uid, const Membership& membership) {
  std::string text = absl::StrCat("uid ", uid);
  for (const MemberNode& node : membership.nodes) {
    absl::StrAppend(&text, ";", node.name.size(), ":", node.name, " x ", node.ranks.size());
  }
  return HashText(text);
}

}  // namespace ringd
