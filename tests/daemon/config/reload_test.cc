#include "daemon/config/reload.h"

#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/config/help_text.h"

namespace ringd {

using Names = std::vector<std::string>;

TEST_CASE("CompareConfigs: says which settings can be taken over, and which need a restart") {
  const Config before;
  CHECK(CompareConfigs(before, before).reloaded.empty());
  CHECK(CompareConfigs(before, before).restarting.empty());
  Config now;
  now.log_level = "debug";
  now.allowed_users = {"alice"};
  now.max_weight = 7;
  now.socket = "/elsewhere";
  now.rank_exchange = false;
  const ChangedSettings changed = CompareConfigs(before, now);
  CHECK(changed.reloaded == Names{"allowed_users", "max_weight", "log_level"});
  CHECK(changed.restarting == Names{"socket", "rank_exchange"});
}

TEST_CASE("TakeReloaded: copies what may be taken over, and nothing else") {
  Config from;
  from.stall_warning = std::chrono::seconds(9);
  from.node_name = "another";
  Config to;
  to.node_name = "resolved";
  TakeReloaded(from, to);
  CHECK(to.stall_warning == std::chrono::seconds(9));
  CHECK(to.node_name == "resolved");
}

TEST_CASE("HelpText: fits 80 columns, and marks what SIGHUP takes over") {
  std::istringstream lines(HelpText());
  bool marked = false;
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 80);
    CHECK(line != "  --socket *");
    marked = marked || line == "  --log-level *";
  }
  CHECK(marked);
}

}  // namespace ringd
