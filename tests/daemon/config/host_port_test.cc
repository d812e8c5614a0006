#include "daemon/config/host_port.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

TEST_CASE("ParseHostPort: reads names, IPv4, bracketed IPv6 and an empty host") {
  CHECK(ParseHostPort("node-a:7117")->host == "node-a");
  CHECK(ParseHostPort("10.0.0.1:0")->port == 0);
  CHECK(ParseHostPort("[fe80::1]:65535")->host == "fe80::1");
  CHECK(ParseHostPort("[fe80::1]:65535")->port == 65535);
  CHECK(ParseHostPort(":7117")->host.empty());
}

TEST_CASE("ParseHostPort: refuses other forms") {
  for (const char* text : {"", "node-a", "node-a:", "node-a:x", "a:65536", "a:-1", "fe80::1:7117",
                           "[node-a]:7117", "a b:1", "http://a:1"}) {
    INFO(text);
    CHECK_FALSE(ParseHostPort(text).ok());
  }
}

TEST_CASE("FormatHostPort: is the inverse of ParseHostPort") {
  for (const char* text : {"node-a:7117", "[::1]:7117", ":1"}) {
    CHECK(FormatHostPort(*ParseHostPort(text)) == text);
  }
}

TEST_CASE("IsLoopback and IsWildcard: know the usual spellings") {
  CHECK(IsLoopback("127.0.0.1"));
  CHECK(IsLoopback("127.8.8.8"));
  CHECK(IsLoopback("::1"));
  CHECK(IsLoopback("localhost"));
  CHECK_FALSE(IsLoopback("10.0.0.1"));
  CHECK(IsWildcard("0.0.0.0"));
  CHECK(IsWildcard("::"));
  CHECK_FALSE(IsWildcard("127.0.0.1"));
}

}  // namespace
}  // namespace ringd
