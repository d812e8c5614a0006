#include "tests/client/fake_session.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "proto/base/memfd.h"
#include "proto/base/unix_socket.h"
#include "tests/client/fake_ringd.h"

namespace ringd {
namespace {

// Longer than any test waits: without its eventfd the engine sleeps too long to pass.
constexpr int kEngineSleepMs = 5000;

}  // namespace

FakeSession::FakeSession(UniqueFd lifeline, const SessionSegmentLayout& layout,
                         std::uint64_t arena_bytes, FakeOperations* operations)
    : layout_(layout),
      operations_(operations),
      lifeline_(std::move(lifeline)),
      segment_fd_(Must(CreateSealedMemfd("fake-session", layout.segment_bytes()))),
      arena_fd_(Must(CreateSealedMemfd("fake-arena", arena_bytes))),
      segment_(Must(MemoryMapping::Map(segment_fd_.get(), layout.segment_bytes()))),
      arena_(Must(MemoryMapping::Map(arena_fd_.get(), arena_bytes))),
      wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  InitializeSessionSegment(segment_.data(), layout, 1, arena_bytes);
  view_ = ViewSessionSegment(segment_.data(), layout);
  submissions_ = {view_.submission_cursors, view_.submissions, layout.submission_capacity};
  completions_ = {view_.completion_cursors, view_.completions, layout.completion_capacity};
  thread_ = std::thread([this] { Run(); });
}

FakeSession::~FakeSession() { Stop(); }

void FakeSession::Answer(AttachReply reply, int grpc_fd) {
  reply.segment_bytes = layout_.segment_bytes();
  reply.arena_bytes = arena_.size();
  int fds[kAttachFdCount];
  fds[kSessionSegmentFd] = segment_fd_.get();
  fds[kArenaFd] = arena_fd_.get();
  fds[kEngineEventFd] = wakeup_.get();
  fds[kGrpcFd] = grpc_fd;
  (void)SendWithFds(lifeline_.get(), std::as_bytes(std::span(&reply, 1)), fds, Soon());
  // Only the client's copies remain.
  segment_fd_.Reset();
  arena_fd_.Reset();
}

void FakeSession::Push(const CompletionRecord& record) {
  std::lock_guard lock(completion_mutex_);
  // The library promises that there is always room.
  if (completions_.TryPush(record) != RingResult::kOk) std::abort();
}

void FakeSession::Wake() {
  const std::uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof(one));
}

void FakeSession::Stop() {
  stop_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
}

void FakeSession::Run() {
  while (!stop_) {
    Submission submission;
    bool worked = false;
    while (submissions_.TryPop(submission) == RingResult::kOk) {
      worked = true;
      {
        std::lock_guard lock(operations_->mutex);
        operations_->seen.push_back(submission);
      }
      held_.push_back(submission);
    }
    if (!operations_->holding) {
      // The youngest first: nothing may rely on an order.
      while (!held_.empty()) {
        worked = true;
        submission = held_.back();
        held_.pop_back();
        AwaitSource(submission);
        Execute(submission);
      }
    }
    if (worked) {
      Ring();
      continue;
    }
    view_.header->engine_sleeps.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!submissions_.HasWork() && !stop_) {
      pollfd entry{wakeup_.get(), POLLIN, 0};
      std::uint64_t count = 0;
      if (::poll(&entry, 1, kEngineSleepMs) > 0 &&
          ::read(wakeup_.get(), &count, sizeof(count)) == sizeof(count)) {
        ++operations_->wakeups;
      }
    }
    view_.header->engine_sleeps.store(0, std::memory_order_relaxed);
  }
}

void FakeSession::AwaitSource(const Submission& submission) {
  if ((submission.flags & kSourceInPieces) == 0) return;
  DataType type;
  {
    std::lock_guard lock(operations_->mutex);
    type = operations_->tensors.at(submission.registration).data_type;
  }
  const std::uint64_t all = AllStagingPieces(submission.element_count * SizeOf(type));
  while (!stop_ && view_.staging_progress[submission.progress].source != all) {
    std::this_thread::yield();
  }
}

void FakeSession::Execute(const Submission& submission) {
  absl::Status outcome;
  FakeTensor tensor{};
  {
    std::lock_guard lock(operations_->mutex);
    outcome = operations_->status;
    const auto found = operations_->tensors.find(submission.registration);
    if (submission.registration == kPingRegistration) {
      // Nothing to be done.
    } else if (found == operations_->tensors.end()) {
      outcome = absl::InvalidArgumentError("unknown registration");
    } else {
      tensor = found->second;
    }
  }
  const std::uint64_t bytes = submission.element_count * SizeOf(tensor.data_type);
  if (outcome.ok() && (submission.source_offset + bytes > arena_.size() ||
                       submission.destination_offset + bytes > arena_.size())) {
    outcome = absl::InvalidArgumentError("beyond the arena");
  }
  CompletionRecord record{};
  record.sequence = submission.sequence;
  if (outcome.ok()) {
    Compute(submission, tensor, bytes);
  } else {
    record.status = static_cast<std::int32_t>(outcome.code());
    record.error_slot = static_cast<std::uint32_t>(submission.sequence % kErrorTextSlots);
    std::uint32_t& version = error_versions_[record.error_slot];
    version = WriteErrorText(view_.error_texts[record.error_slot], version, outcome.message());
    record.error_version = version;
  }
  Push(record);
}

void FakeSession::Compute(const Submission& submission, const FakeTensor& tensor,
                          std::uint64_t bytes) {
  std::byte* source = arena_.data() + submission.source_offset;
  std::byte* destination = arena_.data() + submission.destination_offset;
  if (tensor.kind == CollectiveKind::kBroadcast) {
    if (!tensor.is_root) std::memset(destination, static_cast<int>(kBroadcastByte), bytes);
  } else if (tensor.data_type == DataType::kFloat32) {
    const auto* in = reinterpret_cast<const float*>(source);
    auto* out = reinterpret_cast<float*>(destination);
    for (std::uint64_t i = 0; i < submission.element_count; ++i) out[i] = 2 * in[i];
  } else {
    std::memmove(destination, source, bytes);
  }
}

}  // namespace ringd
