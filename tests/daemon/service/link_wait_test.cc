#include "daemon/service/link_wait.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringd {
namespace {

TEST_CASE("LinkWait: says what it waits for once, and what has changed, and that they are ready") {
  std::string problems = "eth1 has no carrier; eth2 is down";
  LinkWait links({"eth1", "eth2"}, [&](const std::vector<std::string>& interfaces) {
    CHECK(interfaces == std::vector<std::string>{"eth1", "eth2"});
    return problems;
  });
  CHECK(links.Look() == "waiting for interfaces: eth1 has no carrier; eth2 is down");
  CHECK_FALSE(links.Ready());
  CHECK_FALSE(links.Look().has_value());
  problems = "eth2 is down";
  CHECK(links.Look() == "waiting for interfaces: eth2 is down");
  problems = "";
  CHECK(links.Look() == "interfaces are ready: eth1, eth2");
  CHECK(links.Ready());
  CHECK_FALSE(links.Look().has_value());
}

TEST_CASE("LinkWait: of interfaces that are ready from the start nothing is said") {
  LinkWait links({"eth1"}, [](const auto&) { return std::string(); });
  CHECK_FALSE(links.Look().has_value());
  CHECK(links.Ready());
}

}  // namespace
}  // namespace ringd
