// Reads the configuration again, beside the main thread.
#ifndef RINGD_DAEMON_SERVICE_RELOADER_H_
#define RINGD_DAEMON_SERVICE_RELOADER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "daemon/attach/admission.h"
#include "daemon/config/config_loader.h"
#include "proto/base/clock.h"
#include "proto/base/counted_places.h"

namespace ringd {

// What a SIGHUP has found.
struct Reloaded {
  LoadedConfig loaded;
  std::shared_ptr<Admission> admission;  // whom it admits, by the user database
};

// Files may be on, and the user database may be asked over, a network that does not answer. The
// main thread, which feeds systemd's watchdog, waits for neither.
//
// Thread safety: one thread at a time; no method blocks, the destructor included. A thread that
//   still waits is left alone.
class Reloader {
 public:
  // Reads; may take any time. It uses nothing that might go before it returns.
  using Read = std::function<absl::StatusOr<Reloaded>()>;

  static constexpr std::chrono::seconds kPatience{60};
  // Threads that wait still, although their time is over.
  static constexpr std::size_t kMostLate = 4;

  // `begin` is called when a reading begins, in Ask or Take.
  explicit Reloader(std::function<Read()> begin, Clock::duration patience = kPatience);
  ~Reloader();

  // Reads on a thread of its own: now, or once more when what is being read has been taken.
  void Ask(Clock::time_point now);
  // What was read, once. kDeadlineExceeded: that has taken too long; what it comes to is dropped.
  // kResourceExhausted: too many wait still.
  std::optional<absl::StatusOr<Reloaded>> Take(Clock::time_point now);
  // Something has been asked for and not been taken.
  bool IsUnderWay() const noexcept { return reading_ != nullptr; }

 private:
  struct Reading;

  void Begin(Clock::time_point now);

  const std::function<Read()> begin_;
  const Clock::duration patience_;
  CountedPlaces threads_{kMostLate};
  std::shared_ptr<Reading> reading_;  // null: none
  Clock::time_point deadline_;
  bool once_more_ = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_RELOADER_H_
