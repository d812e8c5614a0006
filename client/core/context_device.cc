// A context's GPU: opening it, operations on tensors in its memory, and how they end.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_context.h"
#include "client/core/context.h"
#include "proto/shm/session_segment.h"
#include "proto/shm/submission.h"

namespace ringd::client {
namespace {

constexpr std::chrono::seconds kOpenDeadline{60};
constexpr std::chrono::seconds kSlabDeadline{10};
constexpr std::chrono::seconds kTellDeadline{10};
// Between looks whether what is to be launched never will be.
constexpr std::chrono::milliseconds kLaunchLook{20};

}  // namespace

absl::StatusOr<const CudaContext*> Context::Gpu() const noexcept {
  if (has_gpu_.load(std::memory_order_acquire)) return gpu_.get();
  return absl::FailedPreconditionError("this context has opened no GPU (ringd_device_open)");
}

absl::StatusOr<DeviceMemory*> Context::Device() {
  const absl::StatusOr<const CudaContext*> gpu = Gpu();
  if (!gpu.ok()) return gpu.status();
  DeviceMemory* const device = device_.load(std::memory_order_acquire);
  if (device != nullptr) return device;
  return HeapOfHostPath();
}

void Context::ReleaseStreams() noexcept {
  DeviceMemory* const device = device_.load(std::memory_order_acquire);
  if (device == nullptr) return;
  std::vector<std::uint32_t> pairs = ringd_operations_.TimelinePairsOfUnfulfilled();
  {
    const MutexLock lock(unreleased_mutex_);
    pairs.insert(pairs.end(), unreleased_pairs_.begin(), unreleased_pairs_.end());
  }
  device->ReleaseWaits(pairs);
}

bool Context::LeaveToBeReleased(std::uint64_t sequence) {
  if (state_.alive() || device_.load(std::memory_order_acquire) == nullptr) return false;
  const std::uint32_t pair = ringd_operations_.TimelinePairOf(sequence);
  if (pair == kNoTimelinePair) return false;
  const MutexLock lock(unreleased_mutex_);
  unreleased_pairs_.push_back(pair);
  return true;
}

absl::Status Context::OpenDevice(const ringd_device_options& options) {
  if (has_gpu_.load(std::memory_order_acquire) || device_opens_.exchange(true)) {
    return absl::AlreadyExistsError("this context has opened a GPU already");
  }
  const absl::Status status = OpenGpuAndMemory(options);
  if (status.ok()) has_gpu_.store(true, std::memory_order_release);
  device_opens_.store(false);
  return status;
}

absl::Status Context::OpenGpuAndMemory(const ringd_device_options& options) {
  if (!state_.alive()) return state_.status();
  const std::string library = options.cuda_library != nullptr && options.cuda_library[0] != '\0'
                                  ? std::string(options.cuda_library)
                                  : cuda_library_;
  absl::StatusOr<std::shared_ptr<const CudaContext>> gpu =
      DeviceMemory::OpenGpu(library, options.device);
  if (!gpu.ok()) {
    TellNoGpu(gpu.status());
    return gpu.status();
  }
  // ringd may want this process to launch before it answers.
  auto servant = std::make_unique<LaunchServant>(
      LaunchServant::Options{library, nccl_library_, (*gpu)->uuid()});
  SetLaunchServant(servant.get());
  const absl::StatusOr<OpenedDevice> opened = AskForDevice(**gpu, options.slab_bytes);
  SetLaunchServant(nullptr);
  if (!opened.ok()) return opened.status();
  gpu_ = *gpu;
  slab_bytes_ = options.slab_bytes;
  if (opened->goes_by_host) return UseHostPath(opened->why_host);
  if (wants_host_path_) {
    return absl::FailedPreconditionError("RINGD_HOST_PATH=1: ringd is too old for that");
  }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> memory =
      TakeSlab(*std::move(gpu), *opened, std::move(servant));
  if (!memory.ok()) return memory.status();
  absl::StatusOr<std::unique_ptr<DeviceStaging>> staging = DeviceStaging::Create(**memory);
  if (!staging.ok()) return staging.status();
  device_memory_ = *std::move(memory);
  device_staging_ = *std::move(staging);
  device_.store(device_memory_.get(), std::memory_order_release);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> Context::TakeSlab(
    std::shared_ptr<const CudaContext> gpu, const OpenedDevice& opened,
    std::unique_ptr<LaunchServant> servant) {
  if (opened.trainer_launches) {
    const std::optional<LaunchServant::Slab> slab = servant->slab();
    if (!slab.has_value()) return absl::InternalError("ringd says that this process has a slab");
    launch_servant_ = std::move(servant);
    return DeviceMemory::Use(std::move(gpu), slab->address, slab->bytes);
  }
  absl::StatusOr<SlabInbox::Slab> slab = slab_inbox_.Await(Clock::now() + kSlabDeadline);
  if (!slab.ok()) return state_.alive() ? slab.status() : state_.status();
  return DeviceMemory::Import(std::move(gpu), *std::move(slab));
}

absl::StatusOr<OpenedDevice> Context::AskForDevice(const CudaContext& gpu,
                                                   std::uint64_t slab_bytes) {
  const Presence presence(calls_);
  const absl::StatusOr<OpenedDevice> opened = control_->OpenDevice(
      {gpu.uuid(), slab_bytes, gpu.is_under_mps(), wants_host_path_}, Clock::now() + kOpenDeadline);
  if (opened.ok()) return opened;
  return Explain(opened.status());
}

void Context::TellNoGpu(const absl::Status& why) {
  AskedDevice asked;
  asked.why_no_gpu = std::string(why.message());
  const Presence presence(calls_);
  // The answer is only that it has been told.
  static_cast<void>(control_->OpenDevice(asked, Clock::now() + kTellDeadline));
}

void Context::SetLaunchServant(LaunchServant* servant) {
  const MutexLock lock(opening_servant_mutex_);
  opening_servant_ = servant;
}

void Context::BeginLaunching(UniqueFd socket) {
  const MutexLock lock(opening_servant_mutex_);
  // The engine sees it if there is no thread: its end of the channel closes.
  if (opening_servant_ != nullptr) static_cast<void>(opening_servant_->Begin(std::move(socket)));
}

absl::StatusOr<void*> Context::DeviceAllocate(std::size_t bytes) {
  const absl::StatusOr<DeviceMemory*> device = Device();
  if (!device.ok()) return device.status();
  if (device_.load(std::memory_order_acquire) == nullptr) return (*device)->Allocate(bytes);
  const absl::StatusOr<std::uint64_t> offset = device_staging_->Allocate(bytes, Clock::now());
  if (!offset.ok()) return offset.status();
  return (*device)->PointerAt(*offset);
}

absl::Status Context::DeviceFree(const void* address) {
  const absl::StatusOr<DeviceMemory*> device = Device();
  if (!device.ok()) return device.status();
  if ((*device)->Free(address)) return absl::OkStatus();
  return absl::InvalidArgumentError("ringd_device_free: this address was not allocated");
}

absl::Status Context::SubmitOnStream(ringd_registration registration, const void* source,
                                     void* destination, void* stream, ringd_operation* operation) {
  const absl::StatusOr<Registration*> found = FindRegistration(registration);
  if (!found.ok()) return found.status();
  Registration& tensor = **found;
  const absl::StatusOr<const CudaContext*> gpu = Gpu();
  if (!gpu.ok()) return gpu.status();
  if (tensor.description.place == TensorPlace::kHost) {
    return InTensor(tensor.description.name,
                    absl::InvalidArgumentError("it is in host memory: submit it by ringd_submit"));
  }
  if (absl::Status status = (*gpu)->CheckNotCapturing(stream); !status.ok()) {
    return InTensor(tensor.description.name, status);
  }
  if (!state_.alive()) return state_.status();
  if (tensor.description.place == TensorPlace::kDevice) {
    return SubmitOnDevice(tensor, source, destination, stream, operation);
  }
  HostPath* const path = host_path_now_.load(std::memory_order_acquire);
  const absl::StatusOr<std::uint64_t> sequence =
      path->Submit(tensor, source, destination, stream, is_interrupted_);
  if (!sequence.ok()) return sequence.status();
  tensor.submissions->Accepted();
  *operation = tensor.lane.tag | (*sequence + 1);
  return absl::OkStatus();
}

absl::Status Context::SubmitOnDevice(Registration& tensor, const void* source, void* destination,
                                     void* stream, ringd_operation* operation) {
  DeviceMemory* const device = device_.load(std::memory_order_acquire);
  const absl::StatusOr<DeviceStaging::Places> places =
      device_staging_->Place(tensor, source, destination, stream);
  if (!places.ok()) return InTensor(tensor.description.name, places.status());
  Submission record{};
  record.registration = tensor.numbers.registration;
  record.element_count = tensor.element_count;
  record.source_offset = places->source_offset;
  record.destination_offset = places->destination_offset;
  OperationEnd end;
  end.registration = &tensor;
  end.device_block = places->block;
  if (absl::Status status = EnqueueOnDevice(record, end); !status.ok()) {
    if (places->block != nullptr) device_staging_->GiveBack(*places->block);
    // The next one follows the wait, then.
    if ((record.flags & kFollowsStreamWait) != 0) {
      a_stream_waits_.store(true, std::memory_order_relaxed);
    }
    return status;
  }
  if (places->block != nullptr) device_staging_->Begin(*places->block, record.sequence);
  tensor.submissions->Accepted();
  const absl::Status signalled = device->SignalReady(stream, record.timeline_pair, record.sequence);
  if (!signalled.ok()) {
    // Nobody can take it back, and the others wait for it.
    const absl::Status why = InTensor(tensor.description.name, signalled);
    state_.Lose(why);
    EndPart(Farewell::kAbandon);
    return why;
  }
  *operation = tensor.lane.tag | (record.sequence + 1);
  return absl::OkStatus();
}

absl::Status Context::EnqueueOnDevice(Submission& record, OperationEnd& end) {
  if (a_stream_waits_.exchange(false, std::memory_order_relaxed)) {
    record.flags |= kFollowsStreamWait;
  }
  InterruptibleWait wait(is_interrupted_);
  for (;;) {
    // Whose pair the next one is, if it is in flight.
    std::optional<std::uint64_t> before;
    {
      const MutexLock lock(timeline_pairs_mutex_);
      if (!FindTimelinePair()) {
        return absl::ResourceExhaustedError(
            "too many operations on device tensors have failed: open a new context");
      }
      const std::uint32_t pair = timeline_pairs_.next();
      before = timeline_pairs_.LastOfNext();
      if (before.has_value() && ringd_operations_.TimelinePairOf(*before) != pair) before.reset();
      if (!before.has_value()) {
        record.timeline_pair = end.timeline_pair = pair;
        const SubmitResult result = ringd_operations_.TrySubmit(record, end);
        if (result == SubmitResult::kEnded) return state_.status();
        if (result == SubmitResult::kOk) {
          timeline_pairs_.Use(record.sequence);
          return absl::OkStatus();
        }
      }
    }
    const absl::StatusOr<Clock::time_point> until = wait.NextEnd();
    if (!until.ok()) return until.status();
    const bool goes_on = before.has_value()
                             ? ringd_operations_.Wait(*before, *until) != WaitResult::kEnded
                             : ringd_operations_.WaitForRoom(end, *until);
    if (!goes_on) return state_.status();
  }
}

bool Context::FindTimelinePair() {
  for (std::uint32_t tried = 0; tried < kTimelinePairs; ++tried) {
    // A look at whether it is in flight takes in how it has ended.
    const std::optional<std::uint64_t> before = timeline_pairs_.LastOfNext();
    if (before.has_value()) static_cast<void>(ringd_operations_.TimelinePairOf(*before));
    if (!ringd_operations_.IsReleased(timeline_pairs_.next())) return true;
    timeline_pairs_.Skip();
  }
  return false;
}

absl::Status Context::StreamWait(ringd_operation operation, void* stream) {
  const absl::StatusOr<const CudaContext*> gpu = Gpu();
  if (!gpu.ok()) return gpu.status();
  if (operation == RINGD_DONE) return absl::OkStatus();
  bool done = false;
  if (absl::Status status = Test(operation, done); !status.ok()) return status;
  if (!state_.alive()) return state_.status();
  const std::uint64_t sequence = SequenceOf(operation);
  if (NodeLanes::TagOf(operation) == NodeLanes::kHostPathTag) {
    if (absl::Status status = (*gpu)->CheckNotCapturing(stream); !status.ok()) return status;
    return host_path_now_.load(std::memory_order_acquire)
        ->StreamWait(sequence, stream, is_interrupted_);
  }
  const bool is_ringds = QueueOf(operation) == &ringd_operations_;
  DeviceBlock* const block = is_ringds ? ringd_operations_.DeviceBlockOf(sequence) : nullptr;
  // The result is there, or never comes: the wait for the operation says so.
  if (done && block == nullptr) return absl::OkStatus();
  if (absl::Status status = (*gpu)->CheckNotCapturing(stream); !status.ok()) return status;
  const std::uint32_t pair =
      is_ringds ? ringd_operations_.TimelinePairOf(sequence) : kNoTimelinePair;
  if (launch_servant_ != nullptr && pair != kNoTimelinePair) {
    if (absl::Status status = AwaitLaunch(pair, sequence); !status.ok()) return status;
  }
  // Before the wait is on the stream, behind which another thread may submit.
  a_stream_waits_.store(true, std::memory_order_relaxed);
  if (block != nullptr) {
    return device_staging_->Fetch(
        *block, sequence, stream,
        pair == kNoTimelinePair ? std::nullopt : std::optional<std::uint32_t>(pair));
  }
  if (pair == kNoTimelinePair) {
    // It may have ended just now.
    if (absl::Status status = Test(operation, done); !status.ok() || done) return status;
    return absl::InvalidArgumentError(
        absl::StrCat("operation ", operation, " is on a tensor in host memory"));
  }
  return device_.load(std::memory_order_acquire)->WaitForResult(stream, pair, sequence);
}

absl::Status Context::AwaitLaunch(std::uint32_t pair, std::uint64_t sequence) {
  LaunchedValues& launched = launch_servant_->launched();
  auto& session = *reinterpret_cast<SessionHeader*>(segment_.data());
  const std::uint32_t slot = DoneSlot(pair);
  const std::uint64_t value = TimelineValueOf(sequence);
  const std::chrono::milliseconds patience = launch_patience_.now();
  Clock::time_point deadline = Clock::now() + patience;
  InterruptibleWait interrupt(is_interrupted_);
  while (!launched.Has(slot, value)) {
    const absl::StatusOr<Clock::time_point> until = interrupt.NextEnd();
    if (!until.ok()) return until.status();
    const Clock::time_point now = Clock::now();
    // That takes NCCL what it takes, also where all ranks are in time.
    if (launched.is_connecting()) deadline = now + patience;
    if (now >= deadline) {
      launch_patience_.NoteInVain(patience);
      return absl::OkStatus();
    }
    // As one who waits for a completion: a bucket that lacks tensors of such a rank is broken.
    session.completions.Wait(std::chrono::nanoseconds(0), [&] {
      launched.Await(slot, value, std::min({*until, deadline, now + kLaunchLook}));
      return true;
    });
    // It has ended badly, or the job has.
    if (!state_.alive() || ringd_operations_.TimelinePairOf(sequence) != pair) {
      return absl::OkStatus();
    }
  }
  launch_patience_.NoteInTime();
  return absl::OkStatus();
}

absl::Status Context::Finish(std::span<const OperationEnd> ends) {
  for (const OperationEnd& end : ends) {
    staging_.Finish(end, true);
    if (end.by_order) end.registration->ordered->GiveBack(*end.registration);
  }
  absl::Status status;
  if (device_.load(std::memory_order_acquire) != nullptr) status = device_staging_->Finish(ends);
  HostPath* const path = host_path_now_.load(std::memory_order_acquire);
  if (status.ok() && path != nullptr) status = path->staging().Finish(ends);
  if (status.ok()) return status;
  state_.Lose(absl::Status(status.code(),
                           absl::StrCat("results can't be copied on the GPU: ", status.message())));
  EndPart(Farewell::kAbandon);
  return state_.status();
}

}  // namespace ringd::client
