// The kernel's body, compiled for the host: it must give the values of proto/reduce.
#include "backends/cuda/kernels/move_tile.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backends/cuda/kernels/move_plan.h"
#include "proto/reduce/reduce.h"
#include "tests/proto/reduce/reference.h"

namespace ringd {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::size_t kMargin = 64;  // must stay as it is, on both sides

constexpr DataType kIntegers[] = {DataType::kInt8,   DataType::kUint8, DataType::kInt32,
                                  DataType::kUint32, DataType::kInt64, DataType::kUint64};
constexpr DataType kFloats[] = {DataType::kFloat64,  DataType::kFloat32,    DataType::kFloat16,
                                DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2};

struct HostMemory {
  void* operator()(std::uint64_t address, std::size_t) const {
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
};

// Runs the whole grid: every tile of the plan, by `threads` lanes one after the other.
void Run(const MovePlan& plan, unsigned threads) {
  const auto count = static_cast<std::uint32_t>(plan.segments().size());
  for (std::uint32_t tile = 0; tile < plan.tile_count(); ++tile) {
    for (unsigned lane = 0; lane < threads; ++lane) {
      REQUIRE(
          kernels::MoveTile(plan.segments().data(), count, tile, {lane, threads}, HostMemory{}));
    }
  }
}

// Random bits are NaN and infinity now and then, which every type must carry, too.
Bytes RandomBytes(std::size_t bytes) {
  static std::mt19937 random(1);
  Bytes values(bytes);
  for (unsigned char& value : values) value = static_cast<unsigned char>(random());
  return values;
}

struct Move {
  DataType from, to;
  Scaling scaling;
  std::size_t count;
  std::size_t source_offset = 0, destination_offset = 0;
};

// What the kernel leaves in a destination with margins.
Bytes Moved(const Move& move, const Bytes& source, unsigned threads) {
  Bytes from(move.source_offset + source.size());
  std::memcpy(from.data() + move.source_offset, source.data(), source.size());
  Bytes to(2 * kMargin + move.destination_offset + move.count * SizeOf(move.to), 0xcc);
  MoveSegment segment;
  segment.source = reinterpret_cast<std::uintptr_t>(from.data()) + move.source_offset;
  segment.destination =
      reinterpret_cast<std::uintptr_t>(to.data()) + kMargin + move.destination_offset;
  segment.count = move.count;
  segment.factor = move.scaling.factor;
  segment.divisor = move.scaling.divisor;
  segment.source_type = move.from;
  segment.destination_type = move.to;
  MovePlan plan;
  REQUIRE(plan.Add(segment).ok());
  Run(plan, threads);
  return to;
}

template <DataType kType>
bool IsNan(const unsigned char* bytes) {
  typename kernels::Float<kType>::Stored stored{};
  std::memcpy(&stored, bytes, sizeof stored);
  return std::isnan(kernels::Float<kType>::Load(stored));
}

bool IsNan(DataType type, const unsigned char* bytes) {
  switch (type) {
    case DataType::kFloat64:
      return IsNan<DataType::kFloat64>(bytes);
    case DataType::kFloat32:
      return IsNan<DataType::kFloat32>(bytes);
    case DataType::kFloat16:
      return IsNan<DataType::kFloat16>(bytes);
    case DataType::kBfloat16:
      return IsNan<DataType::kBfloat16>(bytes);
    case DataType::kFloat8E4M3:
      return IsNan<DataType::kFloat8E4M3>(bytes);
    case DataType::kFloat8E5M2:
      return IsNan<DataType::kFloat8E5M2>(bytes);
    default:
      return false;
  }
}

// The same bits, but for which NaN it is: proto/reduce leaves that open, too.
bool HasSameValues(DataType type, const unsigned char* one, const unsigned char* other,
                   std::size_t count) {
  const std::size_t size = SizeOf(type);
  for (std::size_t i = 0; i < count * size; i += size) {
    if (std::memcmp(one + i, other + i, size) != 0 &&
        !(IsNan(type, one + i) && IsNan(type, other + i))) {
      return false;
    }
  }
  return true;
}

void CheckMargins(const Bytes& to, const Move& move) {
  const std::size_t begin = kMargin + move.destination_offset;
  const std::size_t end = begin + move.count * SizeOf(move.to);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (i < begin || i >= end) REQUIRE(to[i] == 0xcc);
  }
}

TEST_CASE("MoveTile: every type is scaled as CopyScaled does it") {
  std::vector<DataType> types(std::begin(kIntegers), std::end(kIntegers));
  types.insert(types.end(), std::begin(kFloats), std::end(kFloats));
  for (const DataType type : types) {
    for (const Scaling scaling : {Scaling{1.0, 1}, Scaling{0.3, 1}, Scaling{-2.5, 1},
                                  Scaling{1.0, 3}, Scaling{1.7, 7}, Scaling{1e30, 1}}) {
      const Move move{type, type, scaling, 1003};
      INFO(Name(type) << " times " << scaling.factor << " by " << scaling.divisor);
      const Bytes source = RandomBytes(move.count * SizeOf(type));
      const Bytes moved = Moved(move, source, 32);
      Bytes expected(source.size());
      CopyScaled(type, expected.data(), source.data(), move.count, scaling);
      CHECK(HasSameValues(type, moved.data() + kMargin, expected.data(), move.count));
      CheckMargins(moved, move);
    }
  }
}

// A cast by its definition: scaled in float64 if either type is float64, else in float32.
template <typename From, typename To>
void Expect(const Bytes& source, double factor, Bytes* expected) {
  using Wide = std::conditional_t<std::is_same_v<typename From::Computed, double> ||
                                      std::is_same_v<typename To::Computed, double>,
                                  double, float>;
  const std::size_t count = source.size() / sizeof(typename From::Stored);
  expected->resize(count * sizeof(typename To::Stored));
  for (std::size_t i = 0; i < count; ++i) {
    typename From::Stored stored{};
    std::memcpy(&stored, source.data() + i * sizeof stored, sizeof stored);
    const Wide wide = static_cast<Wide>(From::Decode(stored)) * static_cast<Wide>(factor);
    const typename To::Stored result = To::Encode(static_cast<typename To::Computed>(wide));
    std::memcpy(expected->data() + i * sizeof result, &result, sizeof result);
  }
}

template <typename From, typename To>
void CheckCast(DataType from, DataType to) {
  for (const double factor : {1.0, 0.3, 3e5}) {
    const Move move{from, to, Scaling{factor, 1}, 517};
    INFO(Name(from) << " to " << Name(to) << " times " << factor);
    const Bytes source = RandomBytes(move.count * SizeOf(from));
    Bytes expected;
    Expect<From, To>(source, factor, &expected);
    const Bytes moved = Moved(move, source, 32);
    CHECK(HasSameValues(to, moved.data() + kMargin, expected.data(), move.count));
    CheckMargins(moved, move);
  }
}

template <typename From>
void CheckCastsFrom(DataType from) {
  using namespace reference;  // NOLINT(google-build-using-namespace)
  CheckCast<From, SameFormat<double, double>>(from, DataType::kFloat64);
  CheckCast<From, SameFormat<float, float>>(from, DataType::kFloat32);
  CheckCast<From, Float16Format>(from, DataType::kFloat16);
  CheckCast<From, Bfloat16Format>(from, DataType::kBfloat16);
  CheckCast<From, E4M3Format>(from, DataType::kFloat8E4M3);
  CheckCast<From, E5M2Format>(from, DataType::kFloat8E5M2);
}

TEST_CASE("MoveTile: every floating-point type is cast to every other, and scaled") {
  using namespace reference;  // NOLINT(google-build-using-namespace)
  CheckCastsFrom<SameFormat<double, double>>(DataType::kFloat64);
  CheckCastsFrom<SameFormat<float, float>>(DataType::kFloat32);
  CheckCastsFrom<Float16Format>(DataType::kFloat16);
  CheckCastsFrom<Bfloat16Format>(DataType::kBfloat16);
  CheckCastsFrom<E4M3Format>(DataType::kFloat8E4M3);
  CheckCastsFrom<E5M2Format>(DataType::kFloat8E5M2);
}

void CheckAligned(DataType type, std::size_t source_offset, std::size_t destination_offset) {
  for (const std::size_t count : {1, 3, 17, 1000, 20'001}) {
    for (const unsigned threads : {1, 31, 256}) {
      const Move move{type, type, {}, count, source_offset, destination_offset};
      const Bytes source = RandomBytes(count * SizeOf(type));
      const Bytes moved = Moved(move, source, threads);
      REQUIRE(std::memcmp(moved.data() + kMargin + destination_offset, source.data(),
                          source.size()) == 0);
      CheckMargins(moved, move);
    }
  }
}

TEST_CASE("MoveTile: any alignment, any number of threads, and sizes beyond a tile") {
  for (const DataType type : {DataType::kInt8, DataType::kBfloat16, DataType::kFloat32}) {
    for (const std::size_t source_offset : {0, 1, 2, 4, 6, 7, 16}) {
      for (const std::size_t destination_offset : {0, 1, 2, 4, 7, 16}) {
        CheckAligned(type, source_offset, destination_offset);
      }
    }
  }
}

TEST_CASE("MoveTile: a cast of addresses that are not aligned is the same") {
  const Bytes source = RandomBytes(999 * 4);
  const Move aligned{DataType::kFloat32, DataType::kBfloat16, {0.5, 1}, 999};
  Move shifted = aligned;
  shifted.source_offset = 3;
  shifted.destination_offset = 1;
  const Bytes one = Moved(aligned, source, 64);
  const Bytes other = Moved(shifted, source, 64);
  CHECK(std::memcmp(one.data() + kMargin, other.data() + kMargin + 1, 999 * 2) == 0);
}

TEST_CASE("MoveTile: packs many tensors, and unpacks them, in one launch each") {
  std::vector<Bytes> tensors;
  std::size_t all = 0;
  for (const std::size_t count : {1, 9000, 3, 70'000, 250}) {
    tensors.push_back(RandomBytes(count * 2));
    all += tensors.back().size();
  }
  const std::vector<Bytes> before = tensors;
  Bytes bucket(all);
  MovePlan pack;
  MovePlan unpack;
  std::uint64_t at = reinterpret_cast<std::uintptr_t>(bucket.data());
  for (Bytes& tensor : tensors) {
    MoveSegment segment;
    segment.source = reinterpret_cast<std::uintptr_t>(tensor.data());
    segment.destination = at;
    segment.count = tensor.size() / 2;
    segment.source_type = segment.destination_type = DataType::kBfloat16;
    REQUIRE(pack.Add(segment).ok());
    std::swap(segment.source, segment.destination);
    REQUIRE(unpack.Add(segment).ok());
    at += tensor.size();
  }
  Run(pack, kMoveThreads);
  for (Bytes& tensor : tensors) std::fill(tensor.begin(), tensor.end(), 0);
  Run(unpack, kMoveThreads);
  CHECK(tensors == before);
}

TEST_CASE("MoveTile: what is not there is left alone, and told") {
  float value = 1;
  MoveSegment segment;
  segment.source = segment.destination = reinterpret_cast<std::uintptr_t>(&value);
  segment.count = 1;
  segment.factor = 5;
  const auto nothing = [](std::uint64_t, std::size_t) { return static_cast<void*>(nullptr); };
  CHECK_FALSE(kernels::MoveTile(&segment, 1, 0, {0, 1}, nothing));
  // A tile behind the segment's last.
  CHECK_FALSE(kernels::MoveTile(&segment, 1, 1, {0, 1}, HostMemory{}));
  segment.source_type = segment.destination_type = DataType::kBool;
  CHECK_FALSE(kernels::MoveTile(&segment, 1, 0, {0, 1}, HostMemory{}));
  CHECK(value == 1);
}

}  // namespace
}  // namespace ringd
