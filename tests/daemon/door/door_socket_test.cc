#include "daemon/door/door_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>
#include <string>

namespace ringd {
namespace {

sockaddr_storage Address(const std::string& text) {
  sockaddr_storage storage{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else {
    REQUIRE(::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1);
    storage.ss_family = AF_INET6;
  }
  return storage;
}

std::string Source(const std::string& text) { return SourceOf(Address(text)); }

TEST_CASE("SourceOf: each IPv4 address is one, also as an IPv6 socket sees it") {
  CHECK(Source("10.0.0.1") == "10.0.0.1");
  CHECK(Source("10.0.0.2") != Source("10.0.0.1"));
  CHECK(Source("::ffff:10.0.0.1") == Source("10.0.0.1"));
}

TEST_CASE("SourceOf: all addresses of an IPv6 network are one") {
  CHECK(Source("2001:db8::1") == Source("2001:db8::dead:beef:0:2"));
  CHECK(Source("2001:db8::1") != Source("2001:db8:0:1::1"));
}

}  // namespace
}  // namespace ringd
