#include "daemon/config/network_identity.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringd {
namespace {

TEST_CASE("ResolveNetwork: a loopback address means the loopback interface for data") {
  Config config;
  REQUIRE(ResolveNetwork(config).ok());
  CHECK(config.peer_address == "127.0.0.1:7117");
  CHECK(config.advertised_host == "127.0.0.1");
  CHECK(config.data_interfaces == std::vector<std::string>{"lo"});
  CHECK_FALSE(config.node_name.empty());
}

TEST_CASE("ResolveNetwork: an interface stands for its address and keeps the port") {
  Config config;
  config.peer_interface = "lo";
  config.peer_address = ":7200";
  REQUIRE(ResolveNetwork(config).ok());
  CHECK(config.peer_address == "127.0.0.1:7200");
}

TEST_CASE("ResolveNetwork: an interface that is not there is an error that lists the others") {
  for (const bool for_data : {false, true}) {
    Config config;
    if (for_data) {
      config.data_interfaces = {"nosuch0"};
    } else {
      config.peer_interface = "nosuch0";
    }
    const absl::Status status = ResolveNetwork(config);
    CHECK(status.code() == absl::StatusCode::kNotFound);
    CHECK_THAT(std::string(status.message()),
               Catch::Contains("'nosuch0'") && Catch::Contains("lo (127.0.0.1)"));
  }
}

TEST_CASE("ResolveNetwork: what is set stays, and a wildcard address chooses no interface") {
  Config config;
  config.node_name = "node-a";
  config.peer_address = "0.0.0.0:7117";
  config.advertised_host = "node-a.example";
  REQUIRE(ResolveNetwork(config).ok());
  CHECK(config.node_name == "node-a");
  CHECK(config.advertised_host == "node-a.example");
  CHECK(config.data_interfaces.empty());
}

TEST_CASE("FindDataHosts: an address of the data interface, numeric") {
  Config config;
  REQUIRE(ResolveNetwork(config).ok());
  const auto hosts = FindDataHosts(config);
  REQUIRE(hosts.ok());
  CHECK(*hosts == std::vector<std::string>{"127.0.0.1"});
}

TEST_CASE("FindDataHosts: without data interfaces, what other nodes are told to connect to") {
  Config config;
  config.peer_address = "0.0.0.0:7117";
  config.advertised_host = "192.0.2.7";
  REQUIRE(ResolveNetwork(config).ok());
  const auto hosts = FindDataHosts(config);
  REQUIRE(hosts.ok());
  CHECK(*hosts == std::vector<std::string>{"192.0.2.7"});
}

TEST_CASE("FindDataHosts: an interface that is named twice counts once") {
  Config config;
  config.data_interfaces = {"lo", "lo"};
  REQUIRE(ResolveNetwork(config).ok());
  const auto hosts = FindDataHosts(config);
  REQUIRE(hosts.ok());
  CHECK(*hosts == std::vector<std::string>{"127.0.0.1"});
}

TEST_CASE("FindDataHosts: other nodes can't come over the loopback interface") {
  Config config;
  config.peer_address = "0.0.0.0:7117";
  SECTION("a name that stands for it") { config.advertised_host = "localhost"; }
  SECTION("as the data interface") {
    config.advertised_host = "192.0.2.7";
    config.data_interfaces = {"lo"};
  }
  REQUIRE(ResolveNetwork(config).ok());
  CHECK(FindDataHosts(config).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ringd
