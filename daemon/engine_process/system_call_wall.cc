#include "daemon/engine_process/system_call_wall.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "proto/base/errno_status.h"

namespace ringd {
namespace {

#if defined(RINGD_ASAN)
// Its search for leaks looks into the process from a child.
constexpr std::uint32_t kMachine = 0;
constexpr std::uint32_t kFirstForeignCall = 0x80000000;
#elif defined(__x86_64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_X86_64;
constexpr std::uint32_t kFirstForeignCall = 0x40000000;  // x32's
#elif defined(__aarch64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_AARCH64;
constexpr std::uint32_t kFirstForeignCall = 0x80000000;
#else
constexpr std::uint32_t kMachine = 0;
constexpr std::uint32_t kFirstForeignCall = 0x80000000;
#endif

constexpr std::uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr std::uint32_t kUnknown = SECCOMP_RET_ERRNO | ENOSYS;
constexpr std::uint32_t kLeaveUndone = SECCOMP_RET_ERRNO;  // and say that it was done

constexpr long kRefusedCalls[] = {
#if defined(SYS_fork)
    SYS_fork,
    SYS_vfork,
#endif
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    438,  // pidfd_getfd, which Debian 12's headers have, and others do not
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_unshare,
    SYS_setns,
    SYS_ioprio_set,
    425,  // io_uring_setup
};

// Calls that change a process of the same user, which their first argument names.
constexpr long kCallsOnProcesses[] = {
    SYS_prlimit64,
    SYS_sched_setattr,
    SYS_sched_setparam,
    SYS_sched_setscheduler,
};
// Who else gets the signals of a descriptor, and which: it need not be one of this process.
constexpr std::uint32_t kOwnerCommands[] = {F_SETOWN, F_SETSIG, F_SETOWN_EX};
constexpr std::uint32_t kOwnerRequests[] = {FIOSETOWN, SIOCSPGRP};

// The filter is a straight list: each question answers, or goes on to the next one.
class Filter {
 public:
  Filter() {
    Load(offsetof(seccomp_data, arch));
    Add(BPF_JMP | BPF_JEQ | BPF_K, kMachine, 1, 0);
    Answer(kRefuse);
    Load(offsetof(seccomp_data, nr));
    Add(BPF_JMP | BPF_JGE | BPF_K, kFirstForeignCall, 0, 1);
    Answer(kRefuse);
  }

  void Refuse(long call, std::uint32_t how) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1);
    Answer(how);
  }
  // An argument's lower half, which is all that the kernel looks at in these calls.
  struct Condition {
    int argument;
    std::vector<std::uint32_t> values;
  };
  // Allowed if each of these arguments is one of its values.
  void AllowOnlyWith(long call, std::initializer_list<Condition> conditions,
                     std::uint32_t otherwise = kRefuse) {
    std::size_t steps = 1;
    for (const Condition& condition : conditions) steps += condition.values.size() + 2;
    Add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, static_cast<int>(steps));
    for (const Condition& condition : conditions) {
      LoadArgument(condition.argument);
      // Over the rest of the values, and the refusal.
      int over = static_cast<int>(condition.values.size());
      for (const std::uint32_t value : condition.values) {
        Add(BPF_JMP | BPF_JEQ | BPF_K, value, over--, 0);
      }
      Answer(otherwise);
    }
    Answer(kAllow);
  }
  // Refused if the argument is one of these values, else allowed.
  void RefuseWith(long call, int argument, std::span<const std::uint32_t> values) {
    int over = static_cast<int>(values.size());
    Add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, over + 3);
    LoadArgument(argument);
    for (const std::uint32_t value : values) Add(BPF_JMP | BPF_JEQ | BPF_K, value, over--, 0);
    Answer(kAllow);
    Answer(kRefuse);
  }
  // Allowed if the argument has these bits.
  void AllowOnlyWithBits(long call, int argument, std::uint32_t bits) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 4);
    LoadArgument(argument);
    Add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    Answer(kAllow);
    Answer(kRefuse);
  }

  // Allows the rest, and puts the filter in place. As ::prctl.
  int Install() {
    Answer(kAllow);
    sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
  }

 private:
  void Add(int operation, std::uint32_t value, int if_true, int if_false) {
    code_.push_back({static_cast<std::uint16_t>(operation), static_cast<std::uint8_t>(if_true),
                     static_cast<std::uint8_t>(if_false), value});
  }
  void Load(std::size_t offset) {
    Add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset), 0, 0);
  }
  void LoadArgument(int argument) {
    // Both kinds of machine have the lower half first.
    Load(offsetof(seccomp_data, args) + sizeof(std::uint64_t) * static_cast<std::size_t>(argument));
  }
  void Answer(std::uint32_t answer) { Add(BPF_RET | BPF_K, answer, 0, 0); }

  std::vector<sock_filter> code_;
};

}  // namespace

absl::Status PutUpSystemCallWall() {
  if (kMachine == 0) {
    return absl::UnimplementedError("no filter of system calls is known for this kind of machine");
  }
  Filter filter;
  for (const long call : kRefusedCalls) filter.Refuse(call, kRefuse);
  // Its flags are in memory, where no filter sees them; the C library then takes clone.
  filter.Refuse(SYS_clone3, kUnknown);
  filter.AllowOnlyWithBits(SYS_clone, 0, CLONE_THREAD);
  const auto self = static_cast<std::uint32_t>(::getpid());
  filter.AllowOnlyWith(SYS_kill, {{0, {self}}});
  filter.AllowOnlyWith(SYS_tgkill, {{0, {self}}});
  filter.AllowOnlyWith(SYS_pidfd_send_signal, {{1, {0}}});
  // A filter does not know threads: each may set itself (0), and the first one by its number.
  for (const long call : kCallsOnProcesses) filter.AllowOnlyWith(call, {{0, {0, self}}});
  // CUDA's libraries do this to threads of their own by number, and may give up if they can't.
  filter.AllowOnlyWith(SYS_setpriority, {{0, {PRIO_PROCESS}}, {1, {0, self}}}, kLeaveUndone);
  filter.AllowOnlyWith(SYS_sched_setaffinity, {{0, {0, self}}}, kLeaveUndone);
  filter.RefuseWith(SYS_fcntl, 1, kOwnerCommands);
  filter.RefuseWith(SYS_ioctl, 1, kOwnerRequests);
  // It ends with its supervisor, whatever it wants.
  constexpr std::uint32_t kSignalAtEnd[] = {PR_SET_PDEATHSIG};
  filter.RefuseWith(SYS_prctl, 0, kSignalAtEnd);
  if (filter.Install() == 0) return absl::OkStatus();
  if (errno == EINVAL || errno == ENOSYS) {
    return absl::UnimplementedError(
        "this kernel filters no system calls: an engine can start programs");
  }
  return ErrnoStatus(errno, "prctl(PR_SET_SECCOMP)");
}

}  // namespace ringd
