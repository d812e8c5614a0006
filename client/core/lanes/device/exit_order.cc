#include "client/core/lanes/device/exit_order.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "proto/base/mutex.h"

namespace ringd::client {
namespace {

struct Record {
  Mutex mutex;
  std::set<EndsBeforeLibraries*> endings ABSL_GUARDED_BY(mutex);
  std::atomic<pid_t> pid{0};  // of the process whose they are
  std::atomic<bool> has_thread_left{false};
};

// Never destroyed: exit handlers use it.
Record& TheRecord() {
  static auto* const record = new Record;
  return *record;
}

void AtExit(int status, void* /*unused*/) {
  Record& record = TheRecord();
  if (record.pid.load() != ::getpid()) return;
  {
    const MutexLock lock(record.mutex);
    for (EndsBeforeLibraries* const ending : record.endings) ending->EndBeforeLibraries();
  }
  if (!record.has_thread_left.load()) return;
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

void ExitOrder::Add(EndsBeforeLibraries* ending) {
  Record& record = TheRecord();
  record.pid.store(::getpid());
  const MutexLock lock(record.mutex);
  record.endings.insert(ending);
  GoFirst();
}

void ExitOrder::Forget(EndsBeforeLibraries* ending) {
  const MutexLock lock(TheRecord().mutex);
  TheRecord().endings.erase(ending);
}

void ExitOrder::GoFirst() { static_cast<void>(::on_exit(AtExit, nullptr)); }

void ExitOrder::LeaveThreadBehind() noexcept { TheRecord().has_thread_left.store(true); }

}  // namespace ringd::client
