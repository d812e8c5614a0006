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

TEST_CASE("OperationTraits: only what is combined or gathered has parts, and on one side") {
  for (const OperationTraits& traits : kOperationTraits) {
    INFO(Name(traits.kind));
    CHECK_FALSE((traits.input == Extent::kOwnPart && traits.output == Extent::kOwnPart));
    if (traits.HasParts()) CHECK((traits.moves_data && !traits.rooted));
    if (traits.input == Extent::kOwnPart) CHECK_FALSE(traits.combines);
    if (traits.output == Extent::kOwnPart) CHECK(traits.combines);
  }
}

TEST_CASE(
    "OperationTraits: trainers may not ask for what has parts yet, nor for what there is not") {
  for (const OperationTraits& traits : kOperationTraits) {
    CHECK(IsOffered(static_cast<std::uint32_t>(traits.kind)) == !traits.HasParts());
  }
  CHECK_FALSE(IsOffered(static_cast<std::uint32_t>(kCollectiveKindCount)));
  CHECK_FALSE(IsOffered(static_cast<std::uint32_t>(CollectiveKind::kLinkProbe)));
  CHECK_FALSE(IsOffered(static_cast<std::uint32_t>(-1)));
}

}  // namespace ringd
