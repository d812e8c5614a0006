#include "daemon/engine_process/walls.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "daemon/engine_process/file_wall.h"
#include "daemon/engine_process/system_call_wall.h"
#include "proto/base/errno_status.h"
#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

// By how much an engine is rather taken than its supervisor, in the kernel's score.
constexpr int kOomScore = 100;
constexpr int kMaxOomScore = 1000;

constexpr rlim_t kSupervisorsDescriptors = 8192;

// RDMA devices pin memory.
constexpr std::uint64_t kKeptCapabilities = std::uint64_t{1} << CAP_IPC_LOCK;
constexpr int kCapabilities = 64;

void IgnoreSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
}

// How many descriptors are on their way through Unix sockets the kernel counts for all processes of
// a user together, and it lets a process send as long as they are no more than that one may have
// open. An engine can put so many on their way that engines can send none, and ringd still can.
bool LeaveDescriptorsToSupervisor() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_max -= std::min(limit.rlim_max / 4, kSupervisorsDescriptors);
  limit.rlim_cur = std::min(limit.rlim_cur, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// Only while the process is dumpable: the file is root's afterwards.
bool RaiseOomScore() {
  constexpr char kFile[] = "/proc/self/oom_score_adj";
  int score = 0;
  if (!(std::ifstream(kFile) >> score)) return false;
  std::ofstream file(kFile);
  file << std::min(score + kOomScore, kMaxOomScore) << std::flush;
  return file.good();
}

absl::Status DropCapabilities(std::uint64_t but) {
  for (int capability = 0; capability < kCapabilities; ++capability) {
    if ((but >> capability & 1) != 0) continue;
    // Refused if the kernel does not have it, or if this process has no say, and nothing to lose.
    ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (::syscall(SYS_capget, &header, sets) != 0) return ErrnoStatus(errno, "capget");
  bool changed = false;
  for (int word = 0; word < 2; ++word) {
    const auto kept = static_cast<std::uint32_t>(but >> (32 * word)) & sets[word].permitted;
    changed = changed || sets[word].permitted != kept || sets[word].inheritable != 0;
    sets[word] = {.effective = kept, .permitted = kept, .inheritable = 0};
  }
  // systemd's unit does not let an engine without any make the call.
  if (changed && ::syscall(SYS_capset, &header, sets) != 0) return ErrnoStatus(errno, "capset");
  return absl::OkStatus();
}

// From here on this process ends with the thread that started it.
absl::Status BindToSupervisor(int channel) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
    return ErrnoStatus(errno, "prctl(PR_SET_PDEATHSIG)");
  }
  // It may have ended before.
  const absl::StatusOr<PeerCredentials> supervisor = GetPeerCredentials(channel);
  if (!supervisor.ok()) return supervisor.status();
  if (::getppid() == supervisor->pid) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("ringd, pid ", supervisor->pid, ", has ended"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PutUpWalls(const WallOptions& options) {
  std::vector<std::string> missing;
  const auto take = [&missing](const absl::Status& status) {
    if (!absl::IsUnimplemented(status)) return status;
    missing.emplace_back(status.message());
    return absl::OkStatus();
  };
  IgnoreSignals();
  if (!RaiseOomScore())
    missing.emplace_back("when memory runs out, ringd may go before its engine");
  if (!LeaveDescriptorsToSupervisor()) {
    missing.emplace_back("it can keep ringd from sending descriptors");
  }
  // How a trainer of root ended /proc tells only who has root's rights. Where only root and ringd's
  // own user may attach, a trainer has them itself, or can't.
  const std::uint64_t to_read_exits =
      options.shut_out_files ? 0 : std::uint64_t{1} << CAP_SYS_PTRACE;
  if (absl::Status status = DropCapabilities(kKeptCapabilities | to_read_exits); !status.ok()) {
    return status;
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return ErrnoStatus(errno, "prctl(PR_SET_NO_NEW_PRIVS)");
  }
  if (options.shut_out_files) {
    if (absl::Status status = take(PutUpFileWall(options.libraries)); !status.ok()) return status;
  }
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
    return ErrnoStatus(errno, "prctl(PR_SET_DUMPABLE)");
  }
  if (absl::Status status = BindToSupervisor(options.channel); !status.ok()) return status;
  if (absl::Status status = take(PutUpSystemCallWall()); !status.ok()) return status;
  return missing;
}

}  // namespace ringd
