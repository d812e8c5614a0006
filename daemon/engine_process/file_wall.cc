#include "daemon/engine_process/file_wall.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// As linux/landlock.h has them; Debian 12's is older than some. The numbers of the calls are the
// same on all machines.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr int kRulePathBeneath = 1;
constexpr unsigned kAskForVersion = 1;

struct RulesetAttributes {
  std::uint64_t files = 0;
  std::uint64_t network = 0;
  std::uint64_t scoped = 0;
};
struct [[gnu::packed]] PathBeneathAttributes {
  std::uint64_t allowed = 0;
  std::int32_t parent = -1;
};

enum Access : std::uint64_t {
  kExecute = 1U << 0,
  kWriteFile = 1U << 1,
  kReadFile = 1U << 2,
  kReadFolder = 1U << 3,
  kRemoveFile = 1U << 5,
  kMakeFile = 1U << 8,
  kTruncate = 1U << 14,
  kControlDevice = 1U << 15,
};
constexpr std::uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate | kControlDevice;
constexpr std::uint64_t kRead = kReadFile | kReadFolder;
constexpr std::uint64_t kLoad = kRead | kExecute;
constexpr std::uint64_t kUseDevice = kRead | kWriteFile | kControlDevice;
constexpr std::uint64_t kUseSharedMemory = kRead | kWriteFile | kTruncate | kMakeFile | kRemoveFile;

// Abstract Unix sockets and signals.
constexpr std::uint64_t kScoped = 3;

// Everything that this version of the kernel's wall can forbid.
RulesetAttributes Handled(long version) {
  RulesetAttributes handled;
  handled.files = (1U << 13) - 1;
  if (version >= 2) handled.files |= 1U << 13;  // moves between folders
  if (version >= 3) handled.files |= kTruncate;
  if (version >= 5) handled.files |= kControlDevice;
  if (version >= 6) handled.scoped = kScoped;
  return handled;
}

struct Opening {
  absl::string_view pattern;  // as glob(3)
  std::uint64_t access;
};
constexpr Opening kOpenings[] = {
    {"/usr", kLoad},
    {"/lib*", kLoad},
    {"/etc/ld.so.*", kRead},
    {"/etc/localtime", kRead},
    {"/etc/nsswitch.conf", kRead},
    {"/etc/passwd", kRead},
    {"/etc/group", kRead},
    {"/etc/hosts", kRead},
    {"/etc/resolv.conf", kRead},
    {"/etc/ucx", kRead},
    {"/etc/libibverbs.d", kRead},
    {"/etc/nccl.conf", kRead},
    {"/proc", kRead},
    {"/sys", kRead},
    {"/proc/self/task", kRead | kWriteFile},  // pthread_setname_np
    {"/dev/null", kUseDevice},
    {"/dev/zero", kUseDevice},
    {"/dev/full", kUseDevice},
    {"/dev/random", kUseDevice},
    {"/dev/urandom", kUseDevice},
    {"/dev/shm", kUseSharedMemory},
    {"/dev/infiniband", kUseDevice},
    {"/dev/nvidia*", kUseDevice},
    {"/dev/gdrdrv", kUseDevice},
    {"/dev/knem", kUseDevice},
    {"/dev/xpmem", kUseDevice},
};

// What is not there needs no opening.
absl::Status Open(int ruleset, const char* path, std::uint64_t access) {
  const UniqueFd target(::open(path, O_PATH | O_CLOEXEC));
  struct stat info {};
  if (!target.valid() || ::fstat(target.get(), &info) != 0) return absl::OkStatus();
  PathBeneathAttributes rule;
  rule.allowed = S_ISDIR(info.st_mode) ? access : access & kOfFiles;
  rule.parent = target.get();
  if (::syscall(kAddRule, ruleset, kRulePathBeneath, &rule, 0) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("Landlock rule for ", path));
}

absl::Status OpenAll(int ruleset, const std::string& pattern, std::uint64_t access) {
  glob_t found{};
  absl::Status status;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc && status.ok(); ++i) {
      status = Open(ruleset, found.gl_pathv[i], access);
    }
  }
  ::globfree(&found);
  return status;
}

absl::Status OpenLibraryPath(int ruleset, std::uint64_t access) {
  const char* const folders = std::getenv("LD_LIBRARY_PATH");
  for (const auto folder : absl::StrSplit(folders == nullptr ? "" : folders, ':')) {
    // An empty one would be the working folder.
    if (folder.empty()) continue;
    if (absl::Status status = Open(ruleset, std::string(folder).c_str(), access); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

// An MPS through which CUDA is to use the GPUs: its pipes, and a file that is locked. Only where
// somebody has named the folder: its default, in /tmp, anybody could make a link to anywhere.
absl::Status OpenMps(int ruleset, std::uint64_t access) {
  const char* const folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  if (folder == nullptr) return absl::OkStatus();
  return Open(ruleset, folder, access);
}

// A link's target may have its own neighbours beside it.
absl::Status OpenFoldersOf(int ruleset, const std::string& library, std::uint64_t access) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(library, error);
  for (const std::filesystem::path& file : {std::filesystem::path(library), target}) {
    if (!file.is_absolute()) continue;
    absl::Status status = Open(ruleset, file.parent_path().c_str(), access);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PutUpFileWall(const std::vector<std::string>& libraries) {
  const long version = ::syscall(kCreateRuleset, nullptr, 0, kAskForVersion);
  if (version < 1) {
    const int error = errno;
    if (error == ENOSYS || error == EOPNOTSUPP) {
      return absl::UnimplementedError(
          "this kernel has no Landlock: an engine can read all files of its user");
    }
    return ErrnoStatus(error, "landlock_create_ruleset");
  }
  const RulesetAttributes handled = Handled(version);
  const UniqueFd ruleset(static_cast<int>(::syscall(kCreateRuleset, &handled, sizeof(handled), 0)));
  if (!ruleset.valid()) return ErrnoStatus(errno, "landlock_create_ruleset");
  for (const Opening& opening : kOpenings) {
    const std::uint64_t access = opening.access & handled.files;
    absl::Status status = OpenAll(ruleset.get(), std::string(opening.pattern), access);
    if (!status.ok()) return status;
  }
  if (absl::Status status = OpenLibraryPath(ruleset.get(), kLoad); !status.ok()) return status;
  if (absl::Status status = OpenMps(ruleset.get(), kRead | kWriteFile); !status.ok()) return status;
  for (const std::string& library : libraries) {
    absl::Status status = OpenFoldersOf(ruleset.get(), library, kLoad);
    if (!status.ok()) return status;
  }
  if (::syscall(kRestrictSelf, ruleset.get(), 0) != 0) {
    return ErrnoStatus(errno, "landlock_restrict_self");
  }
  return absl::OkStatus();
}

}  // namespace ringd
