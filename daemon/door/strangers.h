// All connections to the door that have not proved anything yet, so many and no more.
#ifndef RINGD_DAEMON_DOOR_STRANGERS_H_
#define RINGD_DAEMON_DOOR_STRANGERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/door/dials.h"
#include "daemon/door/door_reception.h"
#include "daemon/door/stranger.h"
#include "daemon/logging/log_limiter.h"
#include "proto/base/clock.h"

namespace ringd {

// What limits strangers. Tests take other values.
struct StrangerLimits {
  std::size_t most = 256;
  // For the whole handshake.
  Clock::duration patience = std::chrono::seconds(5);
  // How long who wants what nobody waits for yet may wait for that, once it has said all. Below a
  // dialler's patience.
  Clock::duration early = std::chrono::seconds(2);
};

// When a place is wanted and none is free, the address that has most of them loses its oldest. So
// one address can't keep others out, and of very many addresses each keeps one for as long as it
// takes the others to come.
//
// Thread safety: none; the door's thread owns it.
// Ownership: owns the connections until a reception takes them.
class Strangers {
 public:
  // `epoll` gets the connections, with their keys. It, `receptions` and `dials` outlive this. A
  // purpose without a reception is an unknown subject.
  Strangers(int epoll, DoorReceptions* receptions, const Dials* dials, std::string own_name,
            std::uint32_t flags, StrangerLimits limits);

  void Add(AcceptedSocket accepted, Clock::time_point now);
  // Something happened to the connection of this key; unknown ones are ignored.
  void OnEvent(std::uint64_t key, Clock::time_point now);
  // Somebody may wait now for what nobody waited for before.
  void Reconsider(Clock::time_point now);
  // Refuses who came too early, and drops those whose time is over.
  void DropExpired(Clock::time_point now);

  // time_point::max(): nobody's time runs.
  Clock::time_point NextDeadline() const noexcept;
  void Clear();

 private:
  using Places = std::map<std::uint64_t, Stranger>;

  // Until it waits for more, or has ended one way or the other. May end the place.
  void Drive(Places::iterator place, Clock::time_point now);
  // False: it came too early, and waits.
  bool Judge(Places::iterator place, Clock::time_point now);
  void Admit(Places::iterator place);
  void DropOne(Clock::time_point now);
  void Erase(Places::iterator place);
  void LogRefusal(const Stranger& stranger, Clock::time_point now);
  void LogClosed(const Stranger& stranger, absl::string_view why, Clock::time_point now);
  void LogLine(std::string line, Clock::time_point now);

  const int epoll_;
  DoorReceptions* const receptions_;
  const Dials* const dials_;
  const std::string own_name_;
  const std::uint32_t flags_;
  const StrangerLimits limits_;
  Places places_;  // in order of arrival, so of deadlines
  std::map<std::uint64_t, Clock::time_point>
      early_;  // who waits for somebody to wait for it, and until when
  std::map<std::string, std::size_t> by_source_;  // how many places each source has
  std::uint64_t next_key_ = 0;
  LogLimiter log_limiter_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_STRANGERS_H_
