#include "proto/door/secure_random.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringd {

TEST_CASE("RandomBytes: have the length asked for and do not repeat") {
  CHECK(RandomBytes(0).empty());
  CHECK(RandomBytes(32).size() == 32);
  CHECK(RandomBytes(32) != RandomBytes(32));
  const std::string token = RandomHexToken(16);
  CHECK(token.size() == 32);
  CHECK(token.find_first_not_of("0123456789abcdef") == std::string::npos);
}

}  // namespace ringd
