// The vector kernels against the plain reference, for all types and operations, on every
// instruction set.
#include "proto/reduce/reduce.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/proto/reduce/instruction_sets.h"
#include "tests/proto/reduce/reference.h"

namespace ringd {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

// Memory at a chosen distance from a cache line's start, with a margin that nobody may touch.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t offset)
      : bytes_(bytes), memory_(bytes + 2 * kMargin + 2 * kLine, kUntouched) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + kMargin;
    start_ = memory_.data() + kMargin + (kLine - address % kLine) % kLine + offset;
  }

  std::uint8_t* data() { return start_; }

  bool MarginsUntouched() const {
    for (const std::uint8_t* p = memory_.data(); p < memory_.data() + memory_.size(); ++p) {
      if ((p < start_ || p >= start_ + bytes_) && *p != kUntouched) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kMargin = 256;
  static constexpr std::uint8_t kUntouched = 0xA5;

  std::size_t bytes_;
  std::vector<std::uint8_t> memory_;
  std::uint8_t* start_;
};

// Any bits at all: for the float types that means NaN, infinities and subnormals, too. Half of the
// float32 and float64 values are moderate, since random exponents hardly ever meet.
template <typename Format>
void Fill(std::uint8_t* to, std::size_t count, std::mt19937_64& random) {
  using S = typename Format::Stored;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random();
    S value;
    std::memcpy(&value, &bits, sizeof(S));
    if constexpr (std::is_floating_point_v<S>) {
      if (random() % 2 == 0)
        value = static_cast<S>(static_cast<std::int64_t>(random() % 2001) - 1000) / 8;
    }
    std::memcpy(to + i * sizeof(S), &value, sizeof(S));
  }
}

template <typename S>
S At(const std::uint8_t* from, std::size_t i) {
  S value;
  std::memcpy(&value, from + i * sizeof(S), sizeof(S));
  return value;
}

struct Shape {
  std::size_t count;
  std::size_t source_count;
  std::size_t destination_count;
  bool in_place;        // destinations are the first sources
  std::size_t offset;   // of the first buffer from a cache line
  std::size_t stagger;  // added for each further buffer
  double prescale = 1.0;
  enum class Partial { kNone, kLastDestination, kApart } partial = Partial::kNone;
};

template <typename Format>
void CheckShape(DataType type, ReduceOp op, const Shape& shape, const Scaling& scaling,
                Streaming streaming, std::mt19937_64& random) {
  using S = typename Format::Stored;
  const std::size_t bytes = shape.count * sizeof(S);
  std::vector<std::unique_ptr<Buffer>> sources, extra;
  std::vector<const void*> source_pointers;
  std::vector<void*> destination_pointers;
  for (std::size_t i = 0; i < shape.source_count; ++i) {
    sources.push_back(std::make_unique<Buffer>(bytes, (shape.offset + i * shape.stagger) % 64));
    Fill<Format>(sources.back()->data(), shape.count, random);
    source_pointers.push_back(sources.back()->data());
  }
  for (std::size_t i = 0; i < shape.destination_count; ++i) {
    if (shape.in_place && i < shape.source_count) {
      destination_pointers.push_back(sources[i]->data());
    } else {
      extra.push_back(std::make_unique<Buffer>(bytes, (shape.offset + i * shape.stagger) % 64));
      destination_pointers.push_back(extra.back()->data());
    }
  }
  using Partial = Shape::Partial;
  Buffer apart(bytes, (shape.offset + 5) % 64);
  Buffer& last = extra.empty() ? *sources[shape.destination_count - 1] : *extra.back();
  Buffer& partial = shape.partial == Partial::kApart ? apart : last;
  if (shape.partial != Partial::kNone) Fill<Format>(partial.data(), shape.count, random);
  std::vector<S> expected(shape.count), elements(shape.source_count);
  for (std::size_t i = 0; i < shape.count; ++i) {
    for (std::size_t s = 0; s < shape.source_count; ++s) elements[s] = At<S>(sources[s]->data(), i);
    const S element = At<S>(partial.data(), i);
    expected[i] = reference::Reduce<Format>(op, elements, scaling, shape.prescale,
                                            shape.partial == Partial::kNone ? nullptr : &element);
  }

  if (shape.partial != Partial::kNone || shape.prescale != 1.0) {
    CombineContributions(type, op, shape.prescale,
                         shape.partial == Partial::kNone ? nullptr : partial.data(),
                         source_pointers, destination_pointers, shape.count, scaling, streaming);
  } else {
    ReduceManyToMany(type, op, source_pointers, destination_pointers, shape.count, scaling,
                     streaming);
  }

  for (const void* destination : destination_pointers) {
    for (std::size_t i = 0; i < shape.count; ++i) {
      const S got = At<S>(static_cast<const std::uint8_t*>(destination), i);
      if (!reference::Same<Format>(op, got, expected[i])) {
        FAIL("element " << i << " of " << shape.count << ": got " << +Format::Decode(got)
                        << ", expected " << +Format::Decode(expected[i]));
      }
    }
  }
  for (const auto& buffer : sources) REQUIRE(buffer->MarginsUntouched());
  for (const auto& buffer : extra) REQUIRE(buffer->MarginsUntouched());
}

template <typename Body>
void ForEachTypeAndOp(Body body) {
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceOp op : kOps) {
      INFO(std::string(Name(type)) << " " << std::string(Name(op)));
      body(type, op);
    }
  }
}

TEST_CASE("ReduceManyToMany: equals the reference for every count around the block sizes") {
  ForEachInstructionSet([] {
    std::mt19937_64 random(2);
    ForEachTypeAndOp([&](DataType type, ReduceOp op) {
      reference::WithFormat(type, [&](auto format) {
        for (std::size_t count = 0; count < 300; count += 1 + count / 40) {
          INFO("count " << count);
          CheckShape<decltype(format)>(type, op, {count, 2, 1, true, 0, 0}, {}, Streaming::kCached,
                                       random);
        }
      });
    });
  });
}

TEST_CASE(
    "ReduceManyToMany: equals the reference for many sources, destinations, alignments and ways to "
    "store") {
  ForEachInstructionSet([] {
    std::mt19937_64 random(3);
    const Shape kShapes[] = {
        {1000, 1, 1, false, 0, 0}, {1000, 2, 2, true, 0, 0},   {1001, 3, 3, true, 8, 0},
        {777, 4, 4, true, 24, 64}, {1000, 5, 2, false, 1, 0},  {1003, 8, 8, true, 40, 0},
        {1000, 2, 3, true, 3, 7},  {1025, 3, 1, false, 63, 0}, {650, 7, 1, true, 16, 5},
        {40, 2, 2, true, 56, 0},   {3, 2, 2, true, 8, 0},      {129, 17, 17, true, 32, 0},
    };
    ForEachTypeAndOp([&](DataType type, ReduceOp op) {
      reference::WithFormat(type, [&](auto format) {
        for (const Shape& shape : kShapes) {
          for (const Streaming streaming : {Streaming::kCached, Streaming::kPast}) {
            INFO(shape.count << " elements, " << shape.source_count << " to "
                             << shape.destination_count << " offset " << shape.offset
                             << " past caches " << (streaming == Streaming::kPast));
            CheckShape<decltype(format)>(type, op, shape, {}, streaming, random);
            CheckShape<decltype(format)>(type, op, shape, Scaling::AverageOf(3), streaming, random);
          }
        }
      });
    });
  });
}

TEST_CASE("ReduceManyToMany: scales as the reference does") {
  ForEachInstructionSet([] {
    std::mt19937_64 random(4);
    for (const Scaling scaling : {Scaling{0.5, 1}, Scaling{1.0, 4}, Scaling{1.0, 7},
                                  Scaling{-3.25, 6}, Scaling{1e30, 1}, Scaling{1e37, 1}}) {
      INFO("factor " << scaling.factor << " divisor " << scaling.divisor);
      ForEachTypeAndOp([&](DataType type, ReduceOp op) {
        reference::WithFormat(type, [&](auto format) {
          CheckShape<decltype(format)>(type, op, {333, 3, 3, true, 0, 0}, scaling,
                                       Streaming::kCached, random);
        });
      });
    }
  });
}

TEST_CASE("CombineContributions: equals the reference with prescales and partial results") {
  ForEachInstructionSet([] {
    std::mt19937_64 random(6);
    const Shape kShapes[] = {
        {1000, 1, 1, false, 0, 0}, {1001, 1, 2, true, 8, 0}, {777, 3, 3, false, 24, 64},
        {650, 17, 18, true, 0, 0}, {40, 2, 3, true, 56, 0},
    };
    ForEachTypeAndOp([&](DataType type, ReduceOp op) {
      reference::WithFormat(type, [&](auto format) {
        for (Shape shape : kShapes) {
          for (const double prescale : {1.0, 0.125, -0.37, 2.5, 0.0}) {
            for (const auto partial : {Shape::Partial::kNone, Shape::Partial::kLastDestination,
                                       Shape::Partial::kApart}) {
              for (const Streaming streaming : {Streaming::kCached, Streaming::kPast}) {
                INFO(shape.count << " elements, " << shape.source_count << " to "
                                 << shape.destination_count << " prescale " << prescale
                                 << ", partial result " << static_cast<int>(partial));
                shape.prescale = prescale;
                shape.partial = partial;
                CheckShape<decltype(format)>(type, op, shape, {}, streaming, random);
                CheckShape<decltype(format)>(type, op, shape, Scaling{4.0, 3}, streaming, random);
                CheckShape<decltype(format)>(type, op, shape, Scaling{1.0, 3}, streaming, random);
              }
            }
          }
        }
      });
    });
  });
}

// All pairs of values: a different sum, product, minimum and maximum for each.
TEST_CASE("ReduceMany: equals the reference for all pairs of float8 values") {
  std::vector<std::uint8_t> a(65536), b(65536), result(65536);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint8_t>(i);
    b[i] = static_cast<std::uint8_t>(i >> 8);
  }
  ForEachInstructionSet([&] {
    for (const DataType type : {DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
      for (const ReduceOp op : kOps) {
        INFO(std::string(Name(type)) << " " << std::string(Name(op)));
        const void* const sources[] = {a.data(), b.data()};
        ReduceMany(type, op, sources, result.data(), result.size());
        reference::WithFormat(type, [&](auto format) {
          using Format = decltype(format);
          using S = typename Format::Stored;
          int mismatches = 0;
          for (std::size_t i = 0; i < a.size(); ++i) {
            const S pair[] = {static_cast<S>(a[i]), static_cast<S>(b[i])};
            mismatches += !reference::Same<Format>(op, static_cast<S>(result[i]),
                                                   reference::Reduce<Format>(op, pair));
          }
          CHECK(mismatches == 0);
        });
      }
    }
  });
}

// Every value is decoded and encoded; the factors put the result on and between the representable
// values.
TEST_CASE("CopyScaled: equals the reference for all 16-bit floating-point values") {
  std::vector<std::uint16_t> all(65536), result(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  ForEachInstructionSet([&] {
    for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
      for (const double factor : {-1.0, 0.5, 3.0, 0.1, 1.5, 0x1p-12, 0x1p12}) {
        INFO(std::string(Name(type)) << " times " << factor);
        const Scaling scaling{factor, 1};
        CopyScaled(type, result.data(), all.data(), all.size(), scaling);
        reference::WithFormat(type, [&](auto format) {
          using Format = decltype(format);
          using S = typename Format::Stored;
          int mismatches = 0;
          for (std::size_t i = 0; i < all.size(); ++i) {
            const S one[] = {static_cast<S>(all[i])};
            mismatches +=
                !reference::Same<Format>(ReduceOp::kSum, static_cast<S>(result[i]),
                                         reference::Reduce<Format>(ReduceOp::kSum, one, scaling));
          }
          CHECK(mismatches == 0);
        });
      }
    }
  });
}

TEST_CASE("CopyScaled: the identity copies the bytes exactly, any alignment, any way to store") {
  ForEachInstructionSet([] {
    std::mt19937_64 random(5);
    for (const std::size_t count : {0, 1, 63, 64, 65, 255, 256, 4000, 70001}) {
      for (const std::size_t offset : {0, 1, 8, 63}) {
        for (const Streaming streaming : {Streaming::kAuto, Streaming::kCached, Streaming::kPast}) {
          INFO(count << " bytes, offset " << offset);
          Buffer from(count, 3), to(count, offset);
          Fill<reference::BoolFormat>(from.data(), count, random);
          CopyScaled(DataType::kUint8, to.data(), from.data(), count, {}, streaming);
          REQUIRE(std::memcmp(to.data(), from.data(), count) == 0);
          REQUIRE(to.MarginsUntouched());
        }
      }
    }
  });
}

TEST_CASE("ReduceInto: adds into the destination and leaves the source alone") {
  std::vector<float> a(1000, 1.5f), b(1000, 2.0f);
  ReduceInto(DataType::kFloat32, ReduceOp::kSum, a.data(), b.data(), a.size());
  CHECK(a == std::vector<float>(1000, 3.5f));
  CHECK(b == std::vector<float>(1000, 2.0f));
}

}  // namespace
}  // namespace ringd
