#include "client/core/lanes/node/background_helper.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "client/core/waiting/quiet_thread.h"
#include "proto/base/futex.h"

namespace ringd::client {

BackgroundHelper::~BackgroundHelper() { Stop(); }

absl::Status BackgroundHelper::Start() {
  absl::StatusOr<std::thread> thread = StartQuietThread("ringd-helper", [this] { Run(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

void BackgroundHelper::Stop() {
  if (!thread_.joinable()) return;
  stopping_.store(1, std::memory_order_release);
  FutexWakeAll(stopping_);
  operations_.WakeBackground();
  thread_.join();
}

void BackgroundHelper::Run() {
  while (!stopping()) {
    if (processors_.measures()) {
      FutexWait(stopping_, 0, kMeasuringPause);
    } else {
      operations_.AwaitBackgroundWork([this] { return stopping(); });
    }
    WatchProcessors();
    if (operations_.in_flight() == 0) continue;
    if (processors_.has_room()) {
      Help();
    } else {
      StandBy();
    }
  }
}

void BackgroundHelper::StandBy() {
  while (!stopping() && operations_.in_flight() > 0) {
    WatchProcessors();
    // What was put off before has nobody else.
    if (processors_.has_room() || operations_.AnyPutOff()) return Help();
    FutexWait(stopping_, 0, processors_.measures() ? kMeasuringPause : kStandByPause);
  }
}

void BackgroundHelper::WatchProcessors() {
  const bool waits = operations_.waiters() > 0;
  const Clock::time_point now = Clock::now();
  if (!processors_.measures()) {
    if (waits || operations_.in_flight() == 0) return;
    measured_from_ = operations_.consumed();
    measured_since_ = now;
    processors_.Begin(now);
  } else if (waits || operations_.consumed() != measured_from_ ||
             now - measured_since_ > kLongestPiece) {
    processors_.End();
    operations_.SetPutsOff(processors_.has_room());
  }
}

void BackgroundHelper::Help() {
  std::chrono::nanoseconds pause = kLeastPause;
  bool listens = false;
  std::uint64_t consumed = operations_.consumed();
  int looks_kept_out = 0;
  for (int idle = 0; idle < kIdlePauses && !stopping();) {
    WatchProcessors();
    if (!processors_.has_room() && !operations_.AnyPutOff()) break;
    const bool called =
        listens && operations_.AwaitLargeSubmission(pause, [this] { return stopping(); });
    if (called || !listens) FutexWait(stopping_, 0, called ? kLeastPause : pause);
    idle = operations_.in_flight() == 0 ? idle + 1 : 0;
    bool worked = false;
    // Somebody takes operations out; but not for ever: it may be small ones, waited for all the
    // time.
    const bool insists = looks_kept_out == kLooksToKeepOut;
    looks_kept_out = insists || operations_.consumed() == consumed ? 0 : looks_kept_out + 1;
    if (insists) consumed = operations_.consumed();
    const auto keeps_out = [&] { return stopping() || operations_.consumed() != consumed; };
    while (!keeps_out() && operations_.WorkInBackground(oldest_)) worked = true;
    // What was put off has nobody else, then.
    if (insists || (!keeps_out() && operations_.waiters() == 0)) operations_.WidenStagedWindow();
    consumed = operations_.consumed();
    // Who waits for what he has submitted needs nobody, and is not made to call again.
    listens = worked || (listens && !called);
    pause = worked ? kPause : std::min<std::chrono::nanoseconds>(2 * pause, kLongestPause);
  }
}

}  // namespace ringd::client
