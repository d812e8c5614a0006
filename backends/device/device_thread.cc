#include "backends/device/device_thread.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/device/device_worker.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// What the owner and the thread share. The thread has a reference of its own, so that it finds all
// of it when it comes back from a call after its owner has gone.
class DeviceThread::Worker {
 public:
  using Command = std::function<void(DeviceWorker&)>;

  Worker(DeviceThreadOptions options, std::function<void()> wake)
      : wake_(std::move(wake)),
        event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        work_(std::move(options), [this](DeviceEvent event) { Emit(std::move(event)); }) {}

  static void Start(const std::shared_ptr<Worker>& self) {
    const MutexLock lock(self->mutex_);
    try {
      self->thread_ = std::thread([self] { self->Run(); });
    } catch (const std::system_error& error) {
      self->has_ended_ = true;
      self->Add(DeviceOpened{absl::ResourceExhaustedError(
                                 absl::StrCat("no thread can be made for the GPU: ", error.what())),
                             std::nullopt, ""});
    }
  }

  int event_fd() const noexcept { return event_fd_.get(); }
  DeviceWorker& work() noexcept { return work_; }
  const DeviceWorker& work() const noexcept { return work_; }

  void Post(Command command) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    commands_.push_back(std::move(command));
    changed_.NotifyAll();
  }

  std::vector<DeviceEvent> TakeEvents() ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_fd_.get(), &count, sizeof count);
    return std::exchange(events_, {});
  }

  void BeginStop(std::chrono::milliseconds patience) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(is_stopping_, true)) return;
      stop_deadline_ = Clock::now() + patience;
      changed_.NotifyAll();
    }
    // Also where the thread is in a call that waits for other ranks.
    work_.registry().PrepareAbortAll("the engine ends");
  }

  bool Stop(std::chrono::milliseconds patience) ABSL_LOCKS_EXCLUDED(mutex_) {
    const Clock::time_point deadline = Clock::now() + patience;
    BeginStop(patience);
    const MutexLock lock(mutex_);
    if (is_left_) return has_ended_;
    while (!has_ended_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    // Its last step is behind it, or it is left in its call.
    if (thread_.joinable()) thread_.detach();
    is_left_ = true;
    return has_ended_;
  }

  bool has_ended() const ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    return has_ended_;
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  void Emit(DeviceEvent event) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    Add(std::move(event));
  }
  void Add(DeviceEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    events_.push_back(std::move(event));
    if (events_.size() > 1) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event_fd_.get(), &one, sizeof one);
    // Who stops it may be gone as soon as it does not answer.
    if (wake_ && !is_stopping_) wake_();
  }

  const std::function<void()> wake_;
  const UniqueFd event_fd_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
  std::vector<DeviceEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_left_ ABSL_GUARDED_BY(mutex_) = false;  // by its owner: nobody waits for it any more
  Clock::time_point stop_deadline_ ABSL_GUARDED_BY(mutex_);
  DeviceWorker work_;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

void DeviceThread::Worker::Run() {
  ::pthread_setname_np(::pthread_self(), "ringd-gpu");
  // Its naps are shorter than the 50 us by which the kernel may prolong them.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  work_.Open();
  std::vector<Command> commands;
  std::chrono::microseconds pause{0};
  for (;;) {
    {
      const MutexLock lock(mutex_);
      const Clock::time_point until = Clock::now() + pause;
      while (commands_.empty() && !is_stopping_ && changed_.WaitUntil(mutex_, until)) {
      }
      commands.swap(commands_);
      if (is_stopping_) break;
    }
    for (Command& command : commands) command(work_);
    commands.clear();
    pause = work_.Progress(Clock::now());
  }
  // What was enqueued has an end, too.
  for (Command& command : commands) command(work_);
  Clock::time_point deadline;
  {
    const MutexLock lock(mutex_);
    deadline = stop_deadline_;
  }
  work_.Shutdown(deadline);
  const MutexLock lock(mutex_);
  has_ended_ = true;
  changed_.NotifyAll();
}

DeviceThread::DeviceThread(DeviceThreadOptions options, std::function<void()> wake)
    : worker_(std::make_shared<Worker>(std::move(options), std::move(wake))) {
  Worker::Start(worker_);
}

DeviceThread::~DeviceThread() { Stop(kStopPatience); }

int DeviceThread::event_fd() const noexcept { return worker_->event_fd(); }

std::vector<DeviceEvent> DeviceThread::TakeEvents() { return worker_->TakeEvents(); }

void DeviceThread::CreateSlab(DeviceSlabId slab, std::size_t bytes) {
  worker_->Post([=](DeviceWorker& work) { work.CreateSlab(slab, bytes); });
}

void DeviceThread::ReleaseSlab(DeviceSlabId slab, std::span<const std::uint32_t> slots) {
  worker_->Post([slab, slots = std::vector(slots.begin(), slots.end())](DeviceWorker& work) {
    work.ReleaseSlab(slab, slots);
  });
}

void DeviceThread::ReleaseSlots(DeviceSlabId slab, std::span<const std::uint32_t> slots) {
  worker_->Post([slab, slots = std::vector(slots.begin(), slots.end())](DeviceWorker& work) {
    work.ReleaseSlots(slab, slots);
  });
}

void DeviceThread::CreateId(std::uint64_t request) {
  worker_->Post([=](DeviceWorker& work) { work.CreateId(request); });
}

void DeviceThread::Connect(DeviceCommunicatorId communicator, const NcclIdBytes& id, int rank,
                           int size, std::size_t fusion_bytes,
                           std::optional<DeviceSlabId> registered_slab,
                           Clock::time_point deadline) {
  worker_->Post([=](DeviceWorker& work) {
    work.Connect(communicator, id, rank, size, fusion_bytes, registered_slab, deadline);
  });
}

void DeviceThread::Disconnect(DeviceCommunicatorId communicator, Clock::time_point deadline) {
  worker_->Post([=](DeviceWorker& work) { work.Disconnect(communicator, deadline); });
}

void DeviceThread::Abort(DeviceCommunicatorId communicator, absl::string_view reason) {
  worker_->work().registry().PrepareAbort(communicator, reason);
  worker_->Post([communicator, reason = std::string(reason)](DeviceWorker& work) {
    work.Abort(communicator, reason);
  });
}

void DeviceThread::Enqueue(DeviceBucket bucket) {
  worker_->Post([bucket = std::move(bucket)](DeviceWorker& work) mutable {
    work.Enqueue(std::move(bucket));
  });
}

bool DeviceThread::Stop(std::chrono::milliseconds patience) { return worker_->Stop(patience); }

void DeviceThread::BeginStop(std::chrono::milliseconds patience) { worker_->BeginStop(patience); }

void DeviceThread::KeepSlabs() noexcept { worker_->work().KeepSlabs(); }

bool DeviceThread::has_ended() const { return worker_->has_ended(); }

DeviceThreadActivity DeviceThread::activity() const { return worker_->work().activity(); }

std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> DeviceThread::Describe() const {
  return worker_->work().registry().Describe();
}

}  // namespace ringd
