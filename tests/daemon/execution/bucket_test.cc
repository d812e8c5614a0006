#include "daemon/execution/bucket.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <vector>

#include "daemon/execution/buffer_pool.h"
#include "daemon/execution/execution.h"
#include "tests/daemon/execution/ranks_by_node.h"

namespace ringd {
namespace {

TensorMeta Meta(std::int64_t elements, ReduceOp op = ReduceOp::kSum) {
  TensorMeta meta;
  meta.op = op;
  meta.shape = {elements};
  return meta;
}

// Tensors of a bucket for some members, member m's tensor t filled with (m + 1) * (t + 1).
struct Tensors {
  Tensors(const std::vector<TensorMeta>& metas, int members) {
    for (std::size_t t = 0; t < metas.size(); ++t) {
      for (int m = 0; m < members; ++m) {
        memory.emplace_back(ElementCount(metas[t]), static_cast<float>((m + 1) * (t + 1)));
        auto* bytes = reinterpret_cast<std::byte*>(memory.back().data());
        buffers.push_back(TensorBuffers{bytes, bytes});
      }
    }
  }
  std::vector<std::vector<float>> memory;
  std::vector<TensorBuffers> buffers;
};

BucketLayout LayoutOf(const std::vector<TensorMeta>& metas, int ranks) {
  std::vector<const TensorMeta*> pointers;
  for (const TensorMeta& meta : metas) pointers.push_back(&meta);
  return BucketLayout(pointers, ConsecutiveRanks({ranks}));
}

bool AllEqual(const std::vector<float>& values, float expected) {
  for (const float value : values) {
    if (value != expected) return false;
  }
  return true;
}

// A whole bucket through its buffer, as if this node were all there is.
void PackAndFinish(const BucketMemory& memory, const BucketLayout& layout) {
  std::vector<std::byte> buffer(layout.bytes());
  memory.Pack(buffer.data(), 0, layout.bytes());
  if (layout.kind() == CollectiveKind::kBroadcast) {
    memory.Distribute(buffer.data(), 0, layout.bytes(), buffer.data(), false);
  } else {
    memory.Finish(buffer.data(), 0, layout.bytes());
  }
}

TEST_CASE("BucketLayout: tensors begin at aligned offsets, empty ones take no room") {
  const auto layout = LayoutOf({Meta(3), Meta(0), Meta(17)}, 2);
  REQUIRE(layout.sections().size() == 3);
  CHECK(layout.sections()[0].begin == 0);
  CHECK(layout.sections()[2].begin == 64);
  CHECK(layout.bytes() == 64 + 17 * 4);
  CHECK(layout.payload_bytes() == 20 * 4);
}

TEST_CASE("BucketMemory: packing in uneven pieces sums all members once") {
  const std::vector<TensorMeta> metas = {Meta(1000), Meta(3), Meta(517)};
  const auto layout = LayoutOf(metas, 3);
  Tensors tensors(metas, 3);
  const BucketMemory memory(layout, 3, tensors.buffers, 0);
  std::vector<float> buffer(layout.bytes() / 4 + 16, -1.0F);
  auto* bytes = reinterpret_cast<std::byte*>(buffer.data());
  for (std::size_t at = 0; at < layout.bytes(); at += 92) {
    memory.Pack(bytes, at, std::min(at + 92, layout.bytes()));
  }
  for (std::size_t t = 0; t < metas.size(); ++t) {
    const float expected = static_cast<float>(6 * (t + 1));
    const std::size_t first = layout.sections()[t].begin / 4;
    for (std::size_t i = 0; i < ElementCount(metas[t]); ++i) REQUIRE(buffer[first + i] == expected);
  }
  CHECK(buffer[layout.bytes() / 4] == -1.0F);

  memory.Distribute(bytes, 0, layout.bytes(), bytes, false);
  for (std::size_t t = 0; t < metas.size(); ++t) {
    for (std::size_t m = 0; m < 3; ++m) {
      CHECK(AllEqual(tensors.memory[t * 3 + m], static_cast<float>(6 * (t + 1))));
    }
  }
}

TEST_CASE("BucketMemory: the input of one member's one tensor is where it was given") {
  const std::vector<TensorMeta> metas = {Meta(1000), Meta(100)};
  const auto layout = LayoutOf(metas, 2);
  Tensors tensors(metas, 1);
  const BucketMemory memory(layout, 1, tensors.buffers, 0);
  const std::byte* const first = tensors.buffers[0].source;
  CHECK(memory.Source(0, 4000) == first);
  CHECK(memory.Source(128, 256) == first + 128);
  const std::size_t second = layout.sections()[1].begin;
  CHECK(memory.Source(second + 64, layout.bytes()) == tensors.buffers[1].source + 64);
  CHECK(memory.Source(128, second + 64) == nullptr);

  auto scaled = metas;
  scaled[0].prescale = 2.0;
  const auto scaled_layout = LayoutOf(scaled, 2);
  const BucketMemory scaled_memory(scaled_layout, 1, tensors.buffers, 0);
  CHECK(scaled_memory.Source(0, 128) == nullptr);
  CHECK(scaled_memory.Source(second, second + 64) != nullptr);

  Tensors many(metas, 2);
  CHECK(BucketMemory(layout, 2, many.buffers, 0).Source(0, 128) == nullptr);
}

TEST_CASE("BucketMemory: the last addition goes to every destination, scaled, and nowhere else") {
  const int members = GENERATE(1, 3, 20);
  const double prescale = GENERATE(1.0, 2.0);
  std::vector<TensorMeta> metas = {Meta(1000, ReduceOp::kAverage), Meta(37, ReduceOp::kAverage)};
  metas[1].prescale = prescale;
  const auto layout = LayoutOf(metas, 4 * members);
  Tensors tensors(metas, members);
  const BucketMemory memory(layout, members, tensors.buffers, 0);
  const std::vector<float> partial(layout.bytes() / 4, 100.0F);
  std::vector<float> buffer(layout.bytes() / 4, -1.0F);
  auto* bytes = reinterpret_cast<std::byte*>(buffer.data());
  for (std::size_t at = 0; at < layout.bytes(); at += 640) {
    const std::size_t end = std::min(at + 640, layout.bytes());
    const auto* added = reinterpret_cast<const std::byte*>(partial.data()) + at;
    const std::byte* const result = memory.AddLast(bytes, at, end, added);
    const bool direct = members == 1 && (end <= 4000 || at >= layout.sections()[1].begin);
    CHECK((result == bytes + at) == !direct);
    if (direct) CHECK(buffer[at / 4] == -1.0F);
    float value = 0;
    std::memcpy(&value, result, sizeof(value));
    const bool second = at >= layout.sections()[1].begin;
    const auto sum = static_cast<float>(members * (members + 1) / 2);
    CHECK(value == Approx((100.0F + (second ? 2 * static_cast<float>(prescale) : 1) * sum) /
                          static_cast<float>(4 * members)));
  }
  for (std::size_t t = 0; t < 2; ++t) {
    const auto sum = static_cast<float>(members * (members + 1) / 2);
    const float scale = t == 0 ? 1.0F : 2.0F * static_cast<float>(prescale);
    const float expected = (100.0F + scale * sum) / static_cast<float>(4 * members);
    for (int m = 0; m < members; ++m) {
      const auto& values =
          tensors.memory[t * static_cast<std::size_t>(members) + static_cast<std::size_t>(m)];
      for (const float value : values) REQUIRE(value == Approx(expected));
    }
  }
}

TEST_CASE("BucketMemory: a partial sum goes to the buffer, and no destination changes") {
  const std::vector<TensorMeta> metas = {Meta(100), Meta(50)};
  const auto layout = LayoutOf(metas, 4);
  Tensors tensors(metas, 2);
  const BucketMemory memory(layout, 2, tensors.buffers, 0);
  const std::vector<float> partial(layout.bytes() / 4, 10.0F);
  std::vector<float> buffer(layout.bytes() / 4, -1.0F);
  auto* bytes = reinterpret_cast<std::byte*>(buffer.data());
  memory.Add(bytes, 64, layout.bytes(), reinterpret_cast<const std::byte*>(partial.data()));
  CHECK(buffer[0] == -1.0F);
  CHECK(buffer[16] == 13.0F);
  CHECK(buffer[layout.sections()[1].begin / 4 + 49] == 16.0F);
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t m = 0; m < 2; ++m) {
      CHECK(AllEqual(tensors.memory[t * 2 + m], static_cast<float>((m + 1) * (t + 1))));
    }
  }
}

TEST_CASE("BucketMemory: a result that is sent on is kept in one piece") {
  const std::vector<TensorMeta> metas = {Meta(100), Meta(50)};
  const int members = GENERATE(1, 2);
  const auto layout = LayoutOf(metas, 4);
  Tensors tensors(metas, members);
  const BucketMemory memory(layout, members, tensors.buffers, 0);
  const std::vector<float> result(layout.bytes() / 4, 7.0F);
  const auto* arrived = reinterpret_cast<const std::byte*>(result.data());
  std::vector<float> buffer(layout.bytes() / 4, -1.0F);
  auto* bytes = reinterpret_cast<std::byte*>(buffer.data());
  const std::byte* const of_one = memory.Distribute(bytes, 0, 256, arrived, true);
  CHECK(of_one == (members == 1 ? tensors.buffers[0].destination : bytes));
  const std::byte* const of_two = memory.Distribute(bytes, 256, layout.bytes(), arrived, true);
  CHECK(of_two == bytes + 256);
  CHECK(buffer[64] == 7.0F);
  for (const auto& values : tensors.memory) CHECK(AllEqual(values, 7.0F));
}

TEST_CASE("BucketMemory: an average divides by all ranks, with pre- and postscale") {
  std::vector<TensorMeta> metas = {Meta(100, ReduceOp::kAverage)};
  metas[0].prescale = 4.0;
  metas[0].postscale = 0.5;
  const auto layout = LayoutOf(metas, 2);
  Tensors tensors(metas, 2);
  PackAndFinish(BucketMemory(layout, 2, tensors.buffers, 0), layout);
  // (1 * 4 + 2 * 4) * 0.5 / 2
  CHECK(AllEqual(tensors.memory[0], 3.0F));
  CHECK(AllEqual(tensors.memory[1], 3.0F));
}

TEST_CASE("BucketMemory: more members than one pass takes are all summed") {
  const std::vector<TensorMeta> metas = {Meta(5000)};
  const auto layout = LayoutOf(metas, 20);
  Tensors tensors(metas, 20);
  PackAndFinish(BucketMemory(layout, 20, tensors.buffers, 0), layout);
  for (const auto& values : tensors.memory) CHECK(AllEqual(values, 210.0F));
}

TEST_CASE("BucketMemory: a broadcast copies the root's tensor to every member") {
  std::vector<TensorMeta> metas = {Meta(33)};
  metas[0].kind = CollectiveKind::kBroadcast;
  const auto layout = LayoutOf(metas, 3);
  Tensors tensors(metas, 3);
  PackAndFinish(BucketMemory(layout, 3, tensors.buffers, 1), layout);
  for (const auto& values : tensors.memory) CHECK(AllEqual(values, 2.0F));
}

TEST_CASE("BufferPool: a returned buffer is given out again, to those it fits well") {
  BufferPool pool;
  std::byte* first = nullptr;
  {
    const PooledBuffer buffer = pool.Acquire(100'000);
    first = buffer.data();
    REQUIRE(first != nullptr);
  }
  CHECK(pool.Acquire(90'000).data() == first);
  const std::uint64_t allocated = pool.allocated_bytes();
  CHECK(pool.Acquire(1000).data() != first);  // Too small for it.
  CHECK(pool.allocated_bytes() > allocated);
  CHECK(pool.Acquire(0).data() == nullptr);
}

}  // namespace
}  // namespace ringd
