// The network's interfaces while ringd serves.
#ifndef RINGD_DAEMON_SERVICE_LINK_WATCH_H_
#define RINGD_DAEMON_SERVICE_LINK_WATCH_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "daemon/service/link_wait.h"
#include "proto/base/clock.h"

namespace ringd {

// Has those used that carry data only now, or have other addresses than before, and says in the log
// when one stops to carry any, and when all do again.
//
// Thread safety: one thread at a time. Blocks for no longer than `use` does.
class LinkWatch {
 public:
  // Has jobs to come use all interfaces; an error says why they can't yet.
  using Use = std::function<absl::Status()>;
  // Which addresses they have (DescribeAddresses).
  using Addresses = std::function<std::string()>;

  // Borrows `links`, which has looked: what was ready then is in use, at the addresses `used`.
  LinkWatch(LinkWait& links, Addresses addresses, std::string used, Use use)
      : links_(links),
        addresses_(std::move(addresses)),
        use_(std::move(use)),
        used_(links.Ready() ? std::optional(std::move(used)) : std::nullopt) {}

  // To be called several times a second; looks once a second. True if problems() has changed.
  bool Look(Clock::time_point now);

  // What keeps interfaces from carrying data now, in words; empty if nothing does.
  const std::string& problems() const noexcept { return links_.problems(); }

 private:
  void TakeNewcomers();

  LinkWait& links_;
  const Addresses addresses_;
  const Use use_;
  std::optional<std::string> used_;  // at which addresses; nothing: the interfaces are not yet
  Clock::time_point next_look_;
  std::string trouble_;  // why they are not used yet
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_LINK_WATCH_H_
