#include "client/core/local/background_helper.h"

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
    operations_.AwaitBackgroundWork([this] { return stopping(); });
    if (operations_.in_flight() > 0) Help();
  }
}

void BackgroundHelper::Help() {
  std::chrono::nanoseconds pause = kLeastPause;
  bool listens = false;
  std::uint64_t consumed = operations_.consumed();
  int looks_kept_out = 0;
  for (int idle = 0; idle < kIdlePauses && !stopping();) {
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
