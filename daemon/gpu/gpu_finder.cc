#include "daemon/gpu/gpu_finder.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/gpu/gpu_findings.h"
#include "daemon/logging/log.h"

namespace ringd {
namespace {

const char* NameOf(ProbedLibrary library) {
  return library == ProbedLibrary::kCuda ? "cuda" : "nccl";
}

}  // namespace

GpuFinder::GpuFinder(GpuFinderOptions options)
    : options_(std::move(options)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

GpuFinder::~GpuFinder() { Stop(); }

void GpuFinder::Find(Tell tell) {
  v1::GpusReply known;
  {
    MutexLock lock(mutex_);
    const bool is_fresh = has_found_ && Clock::now() - found_at_ < options_.kept;
    if (!is_stopping_ && !is_fresh && EnsureThread()) {
      Wait({Clock::time_point::max(), std::move(tell)});
      return;
    }
    known = Known();
  }
  tell(known);
}

void GpuFinder::Recall(Clock::duration patience, Tell tell) {
  v1::GpusReply known;
  {
    MutexLock lock(mutex_);
    if (!is_stopping_ && !has_found_ && EnsureThread()) {
      Wait({Clock::now() + patience, std::move(tell)});
      return;
    }
    known = Known();
  }
  tell(known);
}

bool GpuFinder::EnsureThread() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void GpuFinder::Wait(Waiter waiter) {
  waiters_.push_back(std::move(waiter));
  const std::uint64_t one = 1;
  // Fails only if it is full, and then it wakes as well.
  (void)!::write(wake_.get(), &one, sizeof one);
}

void GpuFinder::Stop() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
    thread = std::move(thread_);
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  if (thread.joinable()) thread.join();
}

void GpuFinder::Run() {
  ::pthread_setname_np(::pthread_self(), "ringd-gpus");
  while (!IsStopping()) {
    if (HasWaiters()) {
      Look();
      TellWaiters(true);
    } else {
      Sleep({}, Clock::time_point::max());
    }
  }
  TellWaiters(true);
}

void GpuFinder::Look() {
  std::vector<Part> parts;
  parts.push_back({ProbedLibrary::kCuda, options_.cuda_library, nullptr, absl::OkStatus()});
  parts.push_back({ProbedLibrary::kNccl, options_.nccl_library, nullptr, absl::OkStatus()});
  for (Part& part : parts) StartPart(part, Clock::now());
  for (;;) {
    const Clock::time_point now = Clock::now();
    Clock::time_point until = NextWaiter();
    bool is_over = true;
    for (Part& part : parts) {
      if (!part.is_over) part.is_over = part.process->Advance(now);
      if (!part.is_over) until = std::min(until, part.process->next());
      is_over = is_over && part.is_over;
    }
    if (is_over) break;
    TellWaiters(false);
    if (!Sleep(parts, until)) return;
  }
  Keep(parts, Clock::now());
}

void GpuFinder::StartPart(Part& part, Clock::time_point now) {
  part.is_over = true;
  // One that hangs in the kernel must not become many.
  for (auto stuck = stuck_.begin(); stuck != stuck_.end(); ++stuck) {
    if (stuck->library != part.library) continue;
    stuck->process->Advance(now);
    if (stuck->process->stuck()) {
      part.start =
          absl::UnavailableError(absl::StrCat("is not started: pid ", stuck->process->pid(),
                                              ", which was killed, still hangs in the kernel"));
      return;
    }
    stuck_.erase(stuck);
    break;
  }
  if (part.file.empty()) return;
  const std::string name = NameOf(part.library);
  auto process = ProbeProcess::Start(
      {options_.program, "--probe-gpus", name, absl::StrCat("--", name, "-library"), part.file},
      now + options_.deadline);
  if (!process.ok()) {
    part.start =
        absl::InternalError(absl::StrCat("can't be started: ", process.status().message()));
    return;
  }
  part.process = *std::move(process);
  part.is_over = false;
}

bool GpuFinder::Sleep(const std::vector<Part>& parts, Clock::time_point until) {
  std::vector<pollfd> events = {{wake_.get(), POLLIN, 0}};
  for (const Part& part : parts) {
    if (part.is_over) continue;
    for (const int fd : part.process->descriptors()) events.push_back({fd, POLLIN, 0});
  }
  int timeout = -1;
  if (until != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    timeout = static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }
  ::poll(events.data(), events.size(), timeout);
  std::uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
  return !IsStopping();
}

void GpuFinder::Keep(std::vector<Part>& parts, Clock::time_point now) {
  std::vector<v1::GpuFindings> findings;
  std::vector<absl::Status> ends;
  for (Part& part : parts) {
    const std::string setting = absl::StrCat(NameOf(part.library), "_library");
    ProbeResult result{part.file, "", part.start, ""};
    if (part.process != nullptr) {
      result.output = part.process->output();
      result.end = part.process->end();
      result.last_error = result.end.ok() ? "" : part.process->LastError();
    }
    v1::GpuFindings found;
    if (part.file.empty()) {
      found.mutable_library()->set_problem(absl::StrCat(setting, " is not set"));
    } else {
      found = ReadFindings(result);
    }
    if (!result.end.ok()) {
      LogWarning(absl::StrCat("looking for GPUs, ", setting, " ", part.file, ": ",
                              found.library().problem()));
    }
    findings.push_back(std::move(found));
    ends.push_back(result.end);
    if (part.process != nullptr && part.process->stuck()) stuck_.push_back(std::move(part));
  }
  MutexLock lock(mutex_);
  found_ = MergeFindings(findings[0], ends[0], findings[1]);
  found_at_ = now;
  has_found_ = true;
}

void GpuFinder::TellWaiters(bool everybody) {
  std::vector<Waiter> told;
  v1::GpusReply known;
  {
    MutexLock lock(mutex_);
    const Clock::time_point now = Clock::now();
    const auto first = std::partition(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
      return !everybody && waiter.until > now;
    });
    std::move(first, waiters_.end(), std::back_inserter(told));
    waiters_.erase(first, waiters_.end());
    known = Known();
  }
  for (const Waiter& waiter : told) waiter.tell(known);
}

Clock::time_point GpuFinder::NextWaiter() {
  MutexLock lock(mutex_);
  Clock::time_point next = Clock::time_point::max();
  for (const Waiter& waiter : waiters_) next = std::min(next, waiter.until);
  return next;
}

bool GpuFinder::HasWaiters() {
  MutexLock lock(mutex_);
  return !waiters_.empty();
}

bool GpuFinder::IsStopping() {
  MutexLock lock(mutex_);
  return is_stopping_;
}

v1::GpusReply GpuFinder::Known() {
  v1::GpusReply reply = found_;
  if (has_found_) {
    reply.set_age_seconds(std::chrono::duration<double>(Clock::now() - found_at_).count());
  } else {
    reply.set_state("looking");
  }
  return reply;
}

}  // namespace ringd
