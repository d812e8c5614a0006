#include "client/core/tensors/tensor_description.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace ringd::client {
namespace {

using Catch::Matchers::Contains;

// A valid sum of 2 x 3 floats, to be spoilt.
struct Example {
  Example() {
    tensor.struct_size = sizeof(tensor);
    tensor.name = "layer1.weight";
    tensor.data_type = RINGD_FLOAT32;
    tensor.dimensions = 2;
    tensor.shape = shape;
  }
  std::int64_t shape[40] = {2, 3};
  ringd_tensor tensor{};
};

std::string ErrorOf(const ringd_tensor& tensor) {
  const auto description = DescribeTensor(tensor, 4);
  REQUIRE(absl::IsInvalidArgument(description.status()));
  return std::string(description.status().message());
}

TEST_CASE("TensorDescription: counts elements and bytes, and 0 as a scale is 1") {
  Example example;
  const auto description = DescribeTensor(example.tensor, 4);
  REQUIRE(description.ok());
  CHECK(description->element_count == 6);
  CHECK(description->bytes() == 24);
  CHECK(description->prescale == 1.0);
  CHECK(description->postscale == 1.0);
  example.tensor.dimensions = 0;
  example.tensor.shape = nullptr;
  CHECK(DescribeTensor(example.tensor, 4)->element_count == 1);
}

TEST_CASE("TensorDescription: names must be there, short and UTF-8") {
  Example example;
  example.tensor.name = nullptr;
  CHECK_THAT(ErrorOf(example.tensor), Contains("no name"));
  example.tensor.name = "";
  CHECK_THAT(ErrorOf(example.tensor), Contains("no name"));
  const std::string long_name(513, 'n');
  example.tensor.name = long_name.c_str();
  CHECK_THAT(ErrorOf(example.tensor), Contains("longer than 512"));
  const std::string longest(512, 'n');
  example.tensor.name = longest.c_str();
  CHECK(DescribeTensor(example.tensor, 4).ok());
  for (const char* name : {"\xc3\xa4 umlaut", "\xe2\x88\x87", "\xf0\x9f\x98\x80"}) {
    example.tensor.name = name;
    CHECK(DescribeTensor(example.tensor, 4).ok());
  }
  // Lone continuation, cut short, overlong, surrogate, beyond Unicode, never a lead byte.
  for (const char* name : {"\x80", "a\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xff", "\xe2\x88", "\xe2(\xa1"}) {
    example.tensor.name = name;
    INFO(name);
    CHECK_THAT(ErrorOf(example.tensor), Contains("UTF-8"));
  }
}

TEST_CASE("TensorDescription: numbers outside their lists are refused with what is allowed") {
  Example example;
  example.tensor.kind = 3;
  CHECK_THAT(ErrorOf(example.tensor), Contains("'layer1.weight': kind is 3"));
  example.tensor.kind = -1;
  CHECK_THAT(ErrorOf(example.tensor), Contains("kind is -1"));
  example.tensor.kind = RINGD_ALLREDUCE;
  example.tensor.data_type = 15;
  CHECK_THAT(ErrorOf(example.tensor), Contains("data_type is 15; it must be 0 to 14"));
  example.tensor.data_type = RINGD_FLOAT32;
  example.tensor.op = 5;
  CHECK_THAT(ErrorOf(example.tensor), Contains("op is 5"));
}

TEST_CASE("TensorDescription: shapes are checked, sizes can't overflow") {
  Example example;
  example.tensor.dimensions = 33;
  CHECK_THAT(ErrorOf(example.tensor), Contains("33 dimensions; 0 to 32"));
  example.tensor.dimensions = -1;
  CHECK_THAT(ErrorOf(example.tensor), Contains("-1 dimensions"));
  example.tensor.dimensions = 2;
  example.tensor.shape = nullptr;
  CHECK_THAT(ErrorOf(example.tensor), Contains("shape is NULL"));
  example.tensor.shape = example.shape;
  example.shape[1] = -3;
  CHECK_THAT(ErrorOf(example.tensor), Contains("dimension 1 is -3"));
  example.shape[0] = example.shape[1] = std::int64_t{1} << 32;
  CHECK_THAT(ErrorOf(example.tensor), Contains("more elements than can be counted"));
  // 2^61 elements can be counted, their bytes can't.
  example.shape[0] = std::int64_t{1} << 60;
  example.shape[1] = 2;
  CHECK_THAT(ErrorOf(example.tensor), Contains("more elements than can be counted"));
  example.shape[0] = 0;
  example.shape[1] = INT64_MAX;
  CHECK(DescribeTensor(example.tensor, 4)->element_count == 0);
  example.tensor.dimensions = 3;
  example.shape[0] = example.shape[1] = INT64_MAX;
  example.shape[2] = 0;
  CHECK(DescribeTensor(example.tensor, 4)->element_count == 0);
}

TEST_CASE("TensorDescription: what a kind or type can't do is refused") {
  Example example;
  example.tensor.data_type = RINGD_BOOL;
  example.tensor.op = RINGD_AVERAGE;
  CHECK_THAT(ErrorOf(example.tensor), Contains("bool has no average"));
  example.tensor.op = RINGD_MAX;
  CHECK(DescribeTensor(example.tensor, 4).ok());
  example.tensor.prescale = std::nan("");
  CHECK_THAT(ErrorOf(example.tensor), Contains("finite"));
  example.tensor.prescale = 0;
  example.tensor.kind = RINGD_BROADCAST;
  example.tensor.root_rank = 4;
  CHECK_THAT(ErrorOf(example.tensor), Contains("root_rank is 4; it must be 0 to 3"));
  example.tensor.kind = RINGD_BARRIER;
  CHECK_THAT(ErrorOf(example.tensor), Contains("barrier has no dimensions"));
}

TEST_CASE("TensorDescription: keys are equal exactly for equal meanings") {
  Example a;
  Example b;
  const auto key = [](const Example& example) { return DescribeTensor(example.tensor, 4)->Key(); };
  CHECK(key(a) == key(b));
  b.tensor.prescale = 1.0;
  b.tensor.root_rank = 3;  // means nothing for an all-reduce
  CHECK(key(a) == key(b));
  b.shape[0] = 3;
  b.shape[1] = 2;
  CHECK(key(a) != key(b));
  b = Example();
  b.tensor.shape = b.shape;
  b.tensor.postscale = 0.5;
  CHECK(key(a) != key(b));
  b.tensor.postscale = 1;
  b.tensor.op = RINGD_AVERAGE;
  CHECK(key(a) != key(b));
}

}  // namespace
}  // namespace ringd::client
