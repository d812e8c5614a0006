#include "daemon/schedule/protocol/tensor_meta.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ringd {
namespace {

TensorMeta Meta(DataType dtype, std::vector<std::int64_t> shape) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.shape = std::move(shape);
  return meta;
}

LocatedRankMeta At(int rank, const std::string& node, TensorMeta meta) {
  return {{Rank(rank), std::move(meta)}, node};
}

}  // namespace

TEST_CASE("TensorMeta: what is wrong with a shape") {
  const auto problem_of = [](std::vector<std::int64_t> shape) {
    return ProblemOfShape(Meta(DataType::kFloat32, std::move(shape)));
  };
  CHECK(problem_of({}) == "");
  CHECK(problem_of({std::int64_t{1} << 60}) == "");  // of 4 bytes each: 2^62
  CHECK(problem_of({(std::int64_t{1} << 60) + 1}) == "more than 2^62 bytes");
  CHECK(problem_of({std::int64_t{1} << 40, std::int64_t{1} << 40}) == "more than 2^62 bytes");
  CHECK(problem_of({std::int64_t{1} << 40, std::int64_t{1} << 40, 0}) == "");
  CHECK(problem_of({0, -1}) == "a dimension of -1");
}

TEST_CASE("TensorMeta: counts elements and bytes") {
  CHECK(ElementCount(Meta(DataType::kFloat64, {})) == 1);
  CHECK(ByteCount(Meta(DataType::kFloat64, {3, 4})) == 96);
  CHECK(ByteCount(Meta(DataType::kFloat64, {3, 0})) == 0);
  TensorMeta barrier;
  barrier.kind = CollectiveKind::kBarrier;
  CHECK(ByteCount(barrier) == 0);
}

TEST_CASE("CanFuse: shape and scale may differ, type, operation and root may not") {
  const TensorMeta a = Meta(DataType::kFloat32, {3});
  TensorMeta b = Meta(DataType::kFloat32, {4, 4});
  b.prescale = 0.5;
  CHECK(CanFuse(a, b));
  b.op = ReduceOp::kMax;
  CHECK_FALSE(CanFuse(a, b));
  CHECK_FALSE(CanFuse(a, Meta(DataType::kFloat64, {3})));
  TensorMeta broadcast = a;
  broadcast.kind = CollectiveKind::kBroadcast;
  CHECK_FALSE(CanFuse(a, broadcast));
  TensorMeta other_root = broadcast;
  other_root.root_rank = Rank(1);
  CHECK(CanFuse(broadcast, broadcast));
  CHECK_FALSE(CanFuse(broadcast, other_root));
  TensorMeta barrier;
  barrier.kind = CollectiveKind::kBarrier;
  CHECK_FALSE(CanFuse(barrier, barrier));
}

TEST_CASE("CanLearn: only all-reduces that move something") {
  CHECK(CanLearn(Meta(DataType::kFloat32, {3})));
  CHECK_FALSE(CanLearn(Meta(DataType::kFloat32, {0})));
  TensorMeta broadcast = Meta(DataType::kFloat32, {3});
  broadcast.kind = CollectiveKind::kBroadcast;
  CHECK_FALSE(CanLearn(broadcast));
}

TEST_CASE("TensorMeta: what is on a GPU is another tensor, and needs a launch") {
  const TensorMeta host = Meta(DataType::kFloat32, {3});
  TensorMeta device = host;
  device.place = TensorPlace::kDevice;
  CHECK(MetaKey(host) != MetaKey(device));
  CHECK(CanFuse(device, device));
  CHECK_FALSE(CanFuse(host, device));
  CHECK(CanLearn(device));
  CHECK(NeedsLaunch(device));
  CHECK_FALSE(NeedsLaunch(host));
  CHECK(DescribeMismatch("x", {At(0, "a", host), At(1, "b", device)}) ==
        "tensor 'x': rank 0 on a submitted float32 [3] in host memory, rank 1 on b submitted "
        "float32 [3] in device memory");
}

TEST_CASE("TensorMeta: what takes the host path is learned as what is in host memory is") {
  TensorMeta by_host = Meta(DataType::kFloat32, {3});
  by_host.place = TensorPlace::kDeviceByHost;
  CHECK(CanLearn(by_host));
  CHECK_FALSE(NeedsLaunch(by_host));
  CHECK(CanFuse(by_host, by_host));
  TensorMeta device = by_host;
  device.place = TensorPlace::kDevice;
  CHECK(MetaKey(by_host) != MetaKey(device));
  CHECK_FALSE(CanFuse(by_host, device));
  CHECK(DescribeMismatch("x", {At(0, "a", by_host), At(1, "b", device)}) ==
        "tensor 'x': rank 0 on a submitted float32 [3] in device memory, by the host path, rank 1 "
        "on b submitted float32 [3] in device memory; for all ranks to take the host path, set "
        "device_launch = \"host\" in every ringd.toml, or RINGD_HOST_PATH=1 for every rank");
}

TEST_CASE("DescribeMismatch: names the first rank of each description, in rank order") {
  const TensorMeta small = Meta(DataType::kFloat64, {3, 4});
  const TensorMeta large = Meta(DataType::kFloat32, {3, 4});
  CHECK(DescribeMismatch(
            "x", {At(1, "node-b", large), At(2, "node-c", small), At(0, "node-a", small)}) ==
        "tensor 'x': rank 0 on node-a submitted float64 [3, 4], rank 1 on node-b submitted "
        "float32 [3, 4]");
}

TEST_CASE("DescribeMismatch: mentions what differs beside type and shape") {
  TensorMeta sum = Meta(DataType::kFloat32, {2});
  TensorMeta scaled = sum;
  scaled.op = ReduceOp::kAverage;
  scaled.prescale = 0.5;
  CHECK(DescribeMismatch("y", {At(0, "a", sum), At(1, "b", scaled)}) ==
        "tensor 'y': rank 0 on a submitted sum float32 [2] prescale 1, rank 1 on b submitted "
        "average float32 [2] prescale 0.5");
}

TEST_CASE("TensorMeta: source and destination have sizes of their own where there are parts") {
  TensorMeta meta;
  meta.shape = {10};
  CHECK(SourceBytes(meta, Rank(1)) == 40);
  CHECK(DestinationBytes(meta, Rank(1)) == 40);
  meta.parts = {3, 7};
  meta.kind = CollectiveKind::kReduceScatter;
  CHECK(ByteCount(meta) == 40);
  CHECK(SourceBytes(meta, Rank(1)) == 40);
  CHECK(DestinationBytes(meta, Rank(1)) == 28);
  meta.kind = CollectiveKind::kAllGather;
  CHECK(SourceBytes(meta, Rank(0)) == 12);
  CHECK(DestinationBytes(meta, Rank(0)) == 40);
}

TEST_CASE("TensorMeta: parts make up the whole, and all ranks must say the same ones") {
  TensorMeta meta;
  meta.shape = {10};
  CHECK(PartsFit(meta));
  meta.kind = CollectiveKind::kAllGather;
  CHECK_FALSE(PartsFit(meta));
  meta.parts = {3, 7};
  CHECK(PartsFit(meta));
  CHECK(CanLearn(meta));
  TensorMeta other = meta;
  other.parts = {10, 0};
  CHECK(PartsFit(other));
  CHECK(MetaKey(other) != MetaKey(meta));
  // Rank 1 may be done before rank 0 begins.
  CHECK_FALSE(CanLearn(other));
  CHECK(DescribeMismatch("x", {{{Rank(0), meta}, "a"}, {{Rank(1), other}, "b"}}) ==
        "tensor 'x': rank 0 on a submitted float32 [10] in parts of 3, 7, rank 1 on b submitted "
        "float32 [10] in parts of 10, 0");
  other.parts = {11, -1};
  CHECK_FALSE(PartsFit(other));
  other.parts = {3, 6};
  CHECK_FALSE(PartsFit(other));
}

}  // namespace ringd
