#include "backends/tcp/wire_address.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringd {

TEST_CASE("WireAddress: one host and port, or several with commas between, and nothing else") {
  CHECK(IsWireAddress("10.0.0.1:7117"));
  CHECK(IsWireAddress("[fe80::1]:7117"));
  CHECK(IsWireAddress(JoinWireAddress({"10.0.0.1:7117", "[fd00::1]:7117"})));
  const std::string one = "h:1";
  std::string many = one;
  for (std::size_t i = 1; i < kMostWireInterfaces; ++i) many += "," + one;
  CHECK(IsWireAddress(many));
  CHECK_FALSE(IsWireAddress(many + "," + one));
  for (const char* const wrong :
       {"", ",", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", ":7117", "h:1,", ",h:1", "h:1,,h:1"}) {
    INFO(wrong);
    CHECK_FALSE(IsWireAddress(wrong));
  }
  CHECK_FALSE(IsWireAddress(std::string(10'000, 'h') + ":1"));
}

TEST_CASE("WireAddress: streams for bulk take turns over the interfaces that both nodes have") {
  const std::string own = "a0:1,a1:1,a2:1";
  const std::string peer = "b0:1,b1:1";
  CHECK(CommonInterfaces(own, peer) == 2);
  CHECK(CommonInterfaces(peer, own) == 2);
  const auto to_peer = [&](std::uint32_t stream) { return AddressForStream(own, peer, stream); };
  CHECK(to_peer(0) == "b0:1");  // urgent
  CHECK(to_peer(1) == "b0:1");
  CHECK(to_peer(2) == "b1:1");
  CHECK(to_peer(3) == "b0:1");
  CHECK(AddressForStream(peer, own, 3) == "a0:1");
  CHECK(AddressForStream("b0:1", own, 2) == "a0:1");
}

}  // namespace ringd
