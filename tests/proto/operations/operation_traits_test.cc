#include "proto/operations/operation_traits.h"

#include <catch2/catch.hpp>

namespace ringd {

TEST_CASE("OperationTraits: each kind has its own row") {
  for (int number = 0; number < kCollectiveKindCount; ++number) {
    const auto kind = static_cast<CollectiveKind>(number);
    CHECK(TraitsOf(kind).kind == kind);
  }
}

TEST_CASE("OperationTraits: the root of a rooted kind reads, and all others write") {
  for (const OperationTraits& traits : kOperationTraits) {
    INFO(Name(traits.kind));
    CHECK(traits.Reads(/*is_root=*/true) == traits.moves_data);
    CHECK(traits.Reads(/*is_root=*/false) == (traits.moves_data && !traits.rooted));
    CHECK(traits.Writes(/*is_root=*/true) == (traits.moves_data && !traits.rooted));
    CHECK(traits.Writes(/*is_root=*/false) == traits.moves_data);
  }
}

TEST_CASE("OperationTraits: what is combined has data and no root") {
  for (const OperationTraits& traits : kOperationTraits) {
    INFO(Name(traits.kind));
    if (traits.combines) CHECK((traits.moves_data && !traits.rooted));
    if (traits.rooted) CHECK(traits.moves_data);
  }
}

}  // namespace ringd
