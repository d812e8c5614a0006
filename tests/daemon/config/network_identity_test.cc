#include "daemon/config/network_identity.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
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

TEST_CASE("ResolveNetwork: what no other node could connect to is not advertised") {
  Config config;
  config.advertised_host = GENERATE("0.0.0.0", "::", "node-a:7117", "[::1]:7117", "fe80::1%eth0");
  const absl::Status status = ResolveNetwork(config);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("advertised_host"));
  config.advertised_host = "2001:db8::1";
  CHECK(ResolveNetwork(config).ok());
}

TEST_CASE("ResolveNetwork: an RDMA device for data means UCX with all its transports") {
  char folder[] = "/tmp/ringd-XXXXXX";
  const std::string devices = ::mkdtemp(folder);
  std::filesystem::create_directory(devices + "/mlx5_0");
  Config config;
  config.data_interfaces = {"mlx5_0", "lo", "mlx5_0:2"};

  SECTION("unless something else is set") {
    REQUIRE(ResolveNetwork(config, devices).ok());
    CHECK(config.backend == "ucx");
    CHECK(config.transports == "all");
    CHECK(config.data_interfaces == std::vector<std::string>{"mlx5_0:1", "lo", "mlx5_0:2"});
    // The door has the interfaces' addresses.
    const auto hosts = FindDataHosts(config);
    REQUIRE(hosts.ok());
    CHECK(*hosts == std::vector<std::string>{"127.0.0.1"});
  }
  SECTION("transports that are set stay") {
    config.transports = "rc,self";
    REQUIRE(ResolveNetwork(config, devices).ok());
    CHECK(config.transports == "rc,self");
  }
  SECTION("and our own wire can't use one") {
    config.backend = "tcp";
    const absl::Status status = ResolveNetwork(config, devices);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()),
               Catch::Contains("data_interfaces has an RDMA device"));
  }
  SECTION("a name that leads elsewhere is none") {
    for (const char* name : {"mlx5_9", "..", "../", "/", ":1", ""}) {
      config.data_interfaces = {name};
      CHECK(ResolveNetwork(config, devices).code() == absl::StatusCode::kNotFound);
    }
  }
  std::filesystem::remove_all(devices);
}

TEST_CASE(
    "FindDataHosts: without an interface for data, the address by which others know the node") {
  Config config;
  config.data_interfaces = {"mlx5_0:1"};
  config.advertised_addresses = {"127.0.0.1"};
  const auto hosts = FindDataHosts(config);
  REQUIRE(hosts.ok());
  CHECK(*hosts == std::vector<std::string>{"127.0.0.1"});
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
