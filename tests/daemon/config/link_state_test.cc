#include "daemon/config/link_state.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringd {
namespace {

TEST_CASE("NetworksOf: of the interfaces that are named, by address and mask") {
  const std::vector<InterfaceNetwork> loopback = NetworksOf({"lo"});
  const auto is = [](const char* network) {
    return [network](const InterfaceNetwork& entry) {
      return entry.interface == "lo" && entry.network == network;
    };
  };
  CHECK(std::any_of(loopback.begin(), loopback.end(), is("127.0.0.0/8")));
  CHECK(NetworksOf({"no-such-one"}).empty());
}

TEST_CASE("DescribeSharedNetworks: names the interfaces of each network that has several") {
  CHECK(DescribeSharedNetworks({}).empty());
  CHECK(DescribeSharedNetworks({{"eth1", "10.1.0.0/24"}, {"eth2", "10.2.0.0/24"}}).empty());
  // Two addresses of one interface are no harm.
  CHECK(DescribeSharedNetworks({{"eth1", "10.1.0.0/24"}, {"eth1", "10.1.0.0/24"}}).empty());
  CHECK(DescribeSharedNetworks({{"eth1", "10.1.0.0/24"},
                                {"eth2", "10.1.0.0/24"},
                                {"eth1", "fd00::/64"},
                                {"eth3", "fd00::/64"}}) ==
        "eth1 and eth2 are both in 10.1.0.0/24; eth1 and eth3 are both in fd00::/64");
}

}  // namespace
}  // namespace ringd
