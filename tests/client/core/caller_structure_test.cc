// A structure of ringd.h that has grown, as later versions' will have, between programs and
// libraries of both ages.
#include "client/core/caller_structure.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>

namespace ringd::client {

struct Grown {
  std::size_t struct_size;
  std::int64_t first;
  std::int64_t added;  // since the second version
};

template <>
struct StructureTraits<Grown> {
  static constexpr char kName[] = "ringd_grown";
  static constexpr std::size_t kOldestBytes = 16;
};

namespace {

using Catch::Matchers::Contains;

// As in the first version's header, with what happens to lie behind it.
struct Older {
  std::size_t struct_size;
  std::int64_t first;
  std::int64_t not_of_it;
};
// As in the third version's.
struct Newer {
  std::size_t struct_size;
  std::int64_t first;
  std::int64_t added;
  std::int64_t unknown;
};

TEST_CASE("Caller's structure: fields that an older program lacks are 0") {
  const Older older{16, 1, 77};
  REQUIRE(CheckStructureBytes<Grown>(older.struct_size).ok());
  const auto read = FromCaller<Grown>(&older, older.struct_size);
  CHECK(read.struct_size == 16);
  CHECK(read.first == 1);
  CHECK(read.added == 0);
}

TEST_CASE("Caller's structure: an older program's is filled as far as it goes, not behind") {
  Older older{16, 1, 77};
  ToCaller(Grown{0, 5, 6}, &older, older.struct_size);
  CHECK(older.struct_size == 16);
  CHECK(older.first == 5);
  CHECK(older.not_of_it == 77);
}

TEST_CASE("Caller's structure: fields of a newer program are ignored, and filled with 0") {
  Newer newer{32, 1, 2, 3};
  REQUIRE(CheckStructureBytes<Grown>(newer.struct_size).ok());
  const auto read = FromCaller<Grown>(&newer, newer.struct_size);
  CHECK(read.struct_size == 32);
  CHECK(read.first == 1);
  CHECK(read.added == 2);
  ToCaller(Grown{0, 5, 6}, &newer, newer.struct_size);
  CHECK(newer.struct_size == 32);
  CHECK(newer.first == 5);
  CHECK(newer.added == 6);
  CHECK(newer.unknown == 0);
}

TEST_CASE("Caller's structure: a size that no version has is refused with all that matter") {
  CHECK(CheckStructureBytes<Grown>(kMaxStructureBytes).ok());
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{15}, kMaxStructureBytes + 1}) {
    const absl::Status status = CheckStructureBytes<Grown>(wrong);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Contains("ringd_grown.struct_size is " + std::to_string(wrong)) &&
                   Contains("is 24 in this version") && Contains("less than 16"));
  }
}

}  // namespace
}  // namespace ringd::client
