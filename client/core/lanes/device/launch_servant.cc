#include "client/core/lanes/device/launch_servant.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/device/launch_message.h"
#include "backends/nccl/nccl_communicator.h"
#include "client/core/lanes/device/exit_order.h"
#include "client/core/waiting/quiet_thread.h"
#include "proto/base/errno_status.h"

namespace ringd::client {
namespace {

using std::chrono::milliseconds;

// How often to look at what nobody tells: the thread's step; while parting, whether that is done.
constexpr milliseconds kLookInterval{500};
constexpr milliseconds kPartingInterval{2};
// The engine hears of a step that lasts longer than this, this often.
constexpr std::chrono::seconds kLongStep{1};

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

}  // namespace

// The slab outlives what the engine says of it, and whoever is to end things knows what there is.
class LaunchServant::Commands final : public DeviceLauncher {
 public:
  explicit Commands(LaunchServant& servant) : servant_(servant) {}

  std::vector<DeviceEvent> TakeEvents() override { return gpu().TakeEvents(); }
  void CreateSlab(DeviceSlabId slab, std::size_t bytes) override {
    if (!servant_.slab_id_.has_value()) {
      servant_.slab_id_ = slab;
      return gpu().CreateSlab(slab, bytes);
    }
    DeviceSlabCreated refused;
    refused.slab = slab;
    refused.status = absl::AlreadyExistsError("this process has its slab");
    servant_.Tell(*WriteEvent(std::move(refused)));
  }
  void ReleaseSlab(DeviceSlabId slab, std::span<const std::uint32_t> slots) override {
    gpu().ReleaseSlots(slab, slots);
  }
  void ReleaseSlots(DeviceSlabId slab, std::span<const std::uint32_t> slots) override {
    gpu().ReleaseSlots(slab, slots);
  }
  void CreateId(std::uint64_t request) override { gpu().CreateId(request); }
  void Connect(DeviceCommunicatorId communicator, const NcclIdBytes& id, int rank, int size,
               std::size_t fusion_bytes, std::optional<DeviceSlabId> registered_slab,
               Clock::time_point deadline) override {
    servant_.communicators_.insert(communicator);
    servant_.launched_->BeginConnect();
    gpu().Connect(communicator, id, rank, size, fusion_bytes, registered_slab, deadline);
  }
  void Disconnect(DeviceCommunicatorId communicator, Clock::time_point deadline) override {
    servant_.communicators_.erase(communicator);
    gpu().Disconnect(communicator, deadline);
  }
  void Abort(DeviceCommunicatorId communicator, absl::string_view reason) override {
    servant_.communicators_.erase(communicator);
    gpu().Abort(communicator, reason);
  }
  void Enqueue(DeviceBucket bucket) override {
    servant_.buckets_.insert({bucket.communicator, bucket.id});
    gpu().Enqueue(std::move(bucket));
  }
  bool Stop(milliseconds patience) override { return gpu().Stop(patience); }
  DeviceThreadActivity activity() const override { return gpu().activity(); }
  std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> Describe() const override {
    return gpu().Describe();
  }

 private:
  DeviceThread& gpu() const noexcept { return *servant_.gpu_; }

  LaunchServant& servant_;
};

LaunchServant::LaunchServant(Options options) : options_(std::move(options)) {
  ExitOrder::Add(this);
}

LaunchServant::~LaunchServant() {
  Stop();
  ExitOrder::Forget(this);
}

absl::Status LaunchServant::Begin(UniqueFd socket) {
  const MutexLock lock(mutex_);
  if (has_stopped_ || std::exchange(has_begun_, true)) return absl::OkStatus();
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.valid()) return ErrnoStatus(errno, "eventfd");
  // A forked child must not keep the channel open when this process has ended.
  fork_guard_ = std::make_unique<ForkGuard>(socket.get());
  channel_ = std::make_unique<Channel>(
      std::move(socket),
      ChannelLimits{.frame_bytes = kMostLaunchFrameBytes, .queued_bytes = kMostQueuedEventBytes},
      nullptr);
  absl::StatusOr<std::thread> thread = StartQuietThread("ringd-launch", [this] { Run(); });
  if (!thread.ok()) {
    channel_->Close();
    return thread.status();
  }
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

std::optional<LaunchServant::Slab> LaunchServant::slab() const {
  const MutexLock lock(mutex_);
  return slab_;
}

bool LaunchServant::has_to_hurry() const {
  const MutexLock lock(mutex_);
  return hurries_;
}

bool LaunchServant::Stop(bool hurries) {
  // Who comes second, such as an exit handler, waits for the first.
  const MutexLock stop_lock(stop_mutex_);
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    has_stopped_ = true;
    hurries_ = hurries;
    if (!thread_.joinable()) return !is_left_;
    thread = std::move(thread_);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  }
  thread.join();
  fork_guard_.reset();
  const MutexLock lock(mutex_);
  return !is_left_;
}

void LaunchServant::Run() {
  while (Turn()) {
  }
  channel_->Close();
  if (gpu_ == nullptr) return;
  if (has_to_hurry()) gpu_->KeepSlabs();
  const bool ended = gpu_->Stop();
  if (!ended) ExitOrder::LeaveThreadBehind();
  const MutexLock lock(mutex_);
  is_left_ = !ended;
  slab_.reset();
}

bool LaunchServant::Turn() {
  const auto wait = parts_until_.has_value() ? kPartingInterval : kLookInterval;
  // A negative descriptor is none.
  pollfd looks[3] = {{parts_until_.has_value() ? -1 : stop_.get(), POLLIN, 0},
                     {channel_ended_ ? -1 : channel_->socket(), POLLIN, 0},
                     {gpu_ == nullptr ? -1 : gpu_->event_fd(), POLLIN, 0}};
  if (channel_->WaitsToSend()) looks[1].events |= POLLOUT;
  ::poll(looks, 3, static_cast<int>(wait.count()));
  const Clock::time_point now = Clock::now();
  if ((looks[1].revents & POLLOUT) != 0) channel_->Flush();
  if ((looks[1].revents & ~POLLOUT) != 0) ReadCommands();
  if (looks[2].revents != 0) TellEvents();
  if (looks[0].revents != 0) BeginParting(now);
  if (gpu_ != nullptr) TellStep(now);
  if (!parts_until_.has_value()) return true;
  return gpu_ != nullptr && now < *parts_until_ && !gpu_->Describe().empty();
}

void LaunchServant::ReadCommands() {
  const absl::Status status =
      channel_->Read(kReadBytes, [this](const ChannelFrame& frame) { Handle(frame.bytes); });
  if (!status.ok()) HangUp("the engine has gone");
}

void LaunchServant::HangUp(const char* why) {
  if (std::exchange(channel_ended_, true)) return;
  channel_->Close();
  for (const DeviceCommunicatorId communicator : std::exchange(communicators_, {})) {
    gpu_->Abort(communicator, why);
  }
}

void LaunchServant::Handle(const std::string& frame) {
  if (channel_ended_ || is_refused_) return;
  v1::LaunchCommand command;
  const bool is_one = command.ParseFromString(frame);
  if (is_one && command.has_open() && gpu_ == nullptr) return Open(command.open());
  if (is_one && gpu_ != nullptr && Carry(command, Clock::now(), *commands_).ok()) return;
  HangUp("the engine broke the protocol");
}

void LaunchServant::Open(const v1::LaunchOpen& open) {
  absl::Status status;
  if (open.gpu() != options_.gpu) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "ringd asks for ", open.gpu(), ", and this process has opened ", options_.gpu));
  } else {
    status = PrepareNcclEnvironment(open.nccl_interfaces());
  }
  if (!status.ok()) {
    Tell(*WriteEvent(DeviceOpened{status, std::nullopt, ""}));
    // The engine hangs up when it has read that. If this side did, a command of its that is under
    // way would fail first, and the reason be lost.
    is_refused_ = true;
    return;
  }
  DeviceThreadOptions options;
  options.cuda_library = options_.cuda_library;
  options.nccl_library =
      options_.nccl_library.empty() ? open.nccl_library() : options_.nccl_library;
  options.gpu = options_.gpu;
  options.slab_setting = open.slab_setting();
  options.fusion_setting = open.fusion_setting();
  options.exports_slabs = false;
  options.takes_turns = true;
  options.on_launched = [launched = launched_](auto done) { launched->Note(done); };
  hears_awaits_ = open.hears_awaits();
  gpu_ = std::make_unique<DeviceThread>(std::move(options));
  commands_ = std::make_unique<Commands>(*this);
}

void LaunchServant::TellEvents() {
  for (const DeviceEvent& event : gpu_->TakeEvents()) {
    if (const auto* const opened = std::get_if<DeviceOpened>(&event)) {
      if (opened->status.ok()) ExitOrder::GoFirst();
    } else if (const auto* const created = std::get_if<DeviceSlabCreated>(&event)) {
      const MutexLock lock(mutex_);
      if (created->status.ok()) slab_ = {created->address, created->bytes};
    } else if (std::holds_alternative<DeviceCommunicatorConnected>(event)) {
      launched_->EndConnect();
      ExitOrder::GoFirst();  // NCCL loads libraries of its own
    } else if (const auto* const ended = std::get_if<DeviceBucketEnded>(&event)) {
      buckets_.erase({ended->communicator, ended->bucket});
    } else if (std::holds_alternative<DeviceBucketAwaits>(event) && !hears_awaits_) {
      continue;
    }
    if (const std::optional<v1::LaunchEvent> message = WriteEvent(event)) Tell(*message);
  }
}

void LaunchServant::TellStep(Clock::time_point now) {
  if (now < next_step_) return;
  next_step_ = now + kLongStep;
  const DeviceThreadActivity step = gpu_->activity();
  // Seen twice: a process that was stopped in between has not been in it for so long.
  const bool is_long =
      !step.call.empty() && step.since == seen_since_ && now - step.since >= kLongStep;
  seen_since_ = step.since;
  if (!is_long && !has_told_step_) return;
  has_told_step_ = is_long;
  v1::LaunchEvent event;
  v1::LaunchStep* const told = event.mutable_step();
  if (is_long) {
    told->set_call(step.call);
    told->set_since_ns(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - step.since).count());
    told->set_sets_up(step.sets_up);
  }
  Tell(event);
}

void LaunchServant::Tell(const v1::LaunchEvent& event) {
  if (channel_ended_) return;
  if (!channel_->Send(event.SerializeAsString())) HangUp("the engine does not listen");
}

void LaunchServant::BeginParting(Clock::time_point now) {
  parts_until_ = now + kPartingPatience;
  for (const DeviceCommunicatorId communicator : std::exchange(communicators_, {})) {
    if (has_to_hurry() && !buckets_.empty()) {
      gpu_->Abort(communicator, "this process ends");
    } else {
      gpu_->Disconnect(communicator, *parts_until_);
    }
  }
}

}  // namespace ringd::client
