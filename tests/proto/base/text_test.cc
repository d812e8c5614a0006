#include "proto/base/text.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringd {
namespace {

TEST_CASE("CutToLength: cuts between characters") {
  CHECK(CutToLength("short", 5) == "short");
  CHECK(CutToLength("longer", 5) == "longe");
  CHECK(CutToLength("abé", 3) == "ab");  // é has two bytes
  CHECK(CutToLength("abé", 4) == "abé");
  CHECK(CutToLength("€€", 5) == "€");  // three each
  CHECK(CutToLength("", 0).empty());
  CHECK(CutToLength("é", 0).empty());
}

TEST_CASE("CutToLength: takes what is no UTF-8, too") {
  CHECK(CutToLength(std::string(10, '\x80'), 5).empty());
  CHECK(CutToLength("\xff\xff\xff", 2) == "\xff\xff");
}

}  // namespace
}  // namespace ringd
