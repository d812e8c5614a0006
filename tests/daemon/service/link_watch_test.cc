#include "daemon/service/link_watch.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/service/link_wait.h"
#include "proto/base/clock.h"

namespace ringd {
namespace {

constexpr std::chrono::seconds kLater{1};

struct Watched {
  explicit Watched(std::string first)
      : problems(std::move(first)),
        links({"eth1"}, [this](const std::vector<std::string>&) { return problems; }) {
    static_cast<void>(links.Look());
  }
  LinkWatch Watch() {
    return {links, [this] { return addresses; }, addresses,
            [this] {
              ++uses;
              return use;
            }};
  }

  std::string problems;
  std::string addresses = "eth1 2001:db8::1";
  LinkWait links;
  absl::Status use;
  int uses = 0;
};

TEST_CASE("LinkWatch: what was ready when it began is used, and a loss and its end are noticed") {
  Watched watched("");
  LinkWatch watch = watched.Watch();
  Clock::time_point now = Clock::now();
  CHECK_FALSE(watch.Look(now));
  watched.problems = "eth1 has no carrier";
  CHECK_FALSE(watch.Look(now));  // not so soon again
  CHECK(watch.Look(now += kLater));
  CHECK(watch.problems() == "eth1 has no carrier");
  CHECK_FALSE(watch.Look(now += kLater));
  watched.problems = "";
  CHECK(watch.Look(now += kLater));
  CHECK(watch.problems().empty());
  CHECK(watched.uses == 0);
}

TEST_CASE("LinkWatch: has those used that have other addresses than before, until that succeeds") {
  Watched watched("");
  LinkWatch watch = watched.Watch();
  Clock::time_point now = Clock::now();
  watched.addresses = "eth1 10.0.0.1, eth1 2001:db8::1";
  watched.problems = "eth1 has no carrier";
  watch.Look(now);
  CHECK(watched.uses == 0);
  watched.problems = "";
  watched.use = absl::NotFoundError("tentative");
  watch.Look(now += kLater);
  CHECK(watched.uses == 1);
  watched.use = absl::OkStatus();
  watch.Look(now += kLater);
  CHECK(watched.uses == 2);
  watch.Look(now += kLater);
  CHECK(watched.uses == 2);
}

TEST_CASE("LinkWatch: has those used that come late, once, and tries again where that fails") {
  Watched watched("eth1 is down");
  watched.use = absl::NotFoundError("its address is tentative");
  LinkWatch watch = watched.Watch();
  Clock::time_point now = Clock::now();
  CHECK_FALSE(watch.Look(now));
  CHECK(watched.uses == 0);
  watched.problems = "";
  CHECK(watch.Look(now += kLater));
  CHECK(watched.uses == 1);
  watched.use = absl::OkStatus();
  CHECK_FALSE(watch.Look(now += kLater));
  CHECK(watched.uses == 2);
  CHECK_FALSE(watch.Look(now += kLater));
  CHECK(watched.uses == 2);
}

}  // namespace
}  // namespace ringd
