#include "proto/base/build_id.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

namespace ringd {
namespace {

// The note as it lies in the file: sizes 4 and 20, kind 3, name "GNU".
TEST_CASE("BuildId: the beginning of the number in the program's file") {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string program((std::istreambuf_iterator<char>(file)), {});
  const std::string head("\4\0\0\0\24\0\0\0\3\0\0\0GNU\0", 16);
  const std::size_t at = program.find(head);
  REQUIRE(at != std::string::npos);
  std::string digits;
  for (std::size_t i = at + head.size(); i < at + head.size() + 6; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(program[i]);
    digits += kDigits[byte / 16];
    digits += kDigits[byte % 16];
  }
  CHECK(BuildId() == digits);
  CHECK(VersionAndBuild("1.2.3") == "1.2.3 (build " + digits + ")");
}

}  // namespace
}  // namespace ringd
