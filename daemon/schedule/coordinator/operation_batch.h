// Gathers negotiated tensors that are ready everywhere into operations.
//
// Thread safety: none.
// Invariant: tensors of one operation can be fused (CanFuse), and their bytes exceed the
//   threshold only if the operation has a single tensor.
#ifndef RINGD_DAEMON_SCHEDULE_COORDINATOR_OPERATION_BATCH_H_
#define RINGD_DAEMON_SCHEDULE_COORDINATOR_OPERATION_BATCH_H_

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/schedule/protocol/tensor_meta.h"

namespace ringd {

class OperationBatch {
 public:
  explicit OperationBatch(std::size_t threshold_bytes) : threshold_bytes_(threshold_bytes) {}

  // `follows_wait`: see ReadyTensor. One on a GPU joins none that was added before.
  void Add(const std::string& name, const TensorMeta& meta, bool follows_wait);

  // The tensor names of each operation, ordered by when its first tensor was added. Empties the
  // batch.
  std::vector<std::vector<std::string>> Take();

 private:
  struct Group {
    TensorMeta meta;  // of the first tensor
    std::size_t bytes = 0;
    bool open = true;
    std::vector<std::string> names;
  };

  const std::size_t threshold_bytes_;
  std::vector<Group> groups_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_COORDINATOR_OPERATION_BATCH_H_
