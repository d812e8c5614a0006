#include "daemon/schedule/coordinator/operation_batch.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringd {
namespace {

using Operations = std::vector<std::vector<std::string>>;

TensorMeta Floats(std::int64_t count, DataType dtype = DataType::kFloat32) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.shape = {count};
  return meta;
}

}  // namespace

TEST_CASE("OperationBatch: fuses what fits together, up to the threshold") {
  OperationBatch batch(100);
  batch.Add("a", Floats(10), false);
  batch.Add("b", Floats(15), false);
  batch.Add("c", Floats(1), false);  // 104 bytes would be too many
  CHECK(batch.Take() == Operations{{"a", "b"}, {"c"}});
  CHECK(batch.Take().empty());
}

TEST_CASE("OperationBatch: a full operation is not filled up by later tensors") {
  OperationBatch batch(100);
  batch.Add("a", Floats(20), false);
  batch.Add("b", Floats(20), false);
  batch.Add("c", Floats(5), false);
  CHECK(batch.Take() == Operations{{"a"}, {"b", "c"}});
}

TEST_CASE("OperationBatch: a tensor beyond the threshold travels alone") {
  OperationBatch batch(100);
  batch.Add("big", Floats(1000), false);
  batch.Add("small", Floats(1), false);
  CHECK(batch.Take() == Operations{{"big"}, {"small"}});
}

TEST_CASE("OperationBatch: interleaved types are sorted apart, barriers stay alone") {
  OperationBatch batch(1000);
  TensorMeta barrier;
  barrier.kind = CollectiveKind::kBarrier;
  batch.Add("f1", Floats(1), false);
  batch.Add("d1", Floats(1, DataType::kFloat64), false);
  batch.Add("stop", barrier, false);
  batch.Add("f2", Floats(1), false);
  batch.Add("stop2", barrier, false);
  batch.Add("d2", Floats(1, DataType::kFloat64), false);
  CHECK(batch.Take() == Operations{{"f1", "f2"}, {"d1", "d2"}, {"stop"}, {"stop2"}});
}

}  // namespace ringd
