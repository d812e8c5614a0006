#include "daemon/sessions/registration.h"

#include <catch2/catch.hpp>

#include "proto/operations/operation_traits.h"

namespace ringd {

TEST_CASE("Registration: trainers get the kinds on offer, and no other") {
  v1::TensorDescription description;
  description.set_name("t");
  description.set_data_type(static_cast<std::uint32_t>(DataType::kFloat32));
  description.add_shape(4);
  for (std::uint32_t kind = 0; kind <= kCollectiveKindCount; ++kind) {
    description.set_kind(kind);
    const auto checked = CheckDescription(description, 2);
    CHECK(checked.ok() == IsOffered(kind));
    if (checked.ok()) continue;
    CHECK(checked.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(checked.status().message()).find(std::to_string(kind)) != std::string::npos);
  }
}

TEST_CASE("Registration: a tensor is in host or in device memory, and nowhere else") {
  v1::TensorDescription description;
  description.set_name("t");
  description.set_data_type(static_cast<std::uint32_t>(DataType::kFloat32));
  CHECK(CheckDescription(description, 2)->meta.place == TensorPlace::kHost);
  description.set_place(static_cast<std::uint32_t>(TensorPlace::kDevice));
  CHECK(CheckDescription(description, 2)->meta.place == TensorPlace::kDevice);
  description.set_place(kTensorPlaceCount);
  CHECK(CheckDescription(description, 2).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Registration: a tensor without elements is one, whatever its other dimensions are") {
  v1::TensorDescription description;
  description.set_name("t");
  description.set_data_type(static_cast<std::uint32_t>(DataType::kFloat32));
  for (int i = 0; i < 2; ++i) description.add_shape(std::int64_t{1} << 40);
  CHECK(CheckDescription(description, 2).status().code() == absl::StatusCode::kInvalidArgument);
  description.add_shape(0);
  const auto checked = CheckDescription(description, 2);
  REQUIRE(checked.ok());
  CHECK(checked->bytes == 0);
  CHECK(checked->element_count == 0);
}

}  // namespace ringd
