#include "daemon/schedule/node/tensor_table.h"

namespace ringd {

TensorHandle TensorTable::Insert(const std::string& name) {
  TensorHandle handle;
  if (Find(name, handle)) return handle;
  if (free_.empty()) {
    handle = TensorHandle(static_cast<std::uint32_t>(tensors_.size()));
    tensors_.emplace_back();
  } else {
    handle = free_.back();
    free_.pop_back();
  }
  NodeTensor& tensor = tensors_[handle.value()];
  tensor.name = name;
  tensor.in_use = true;
  by_name_.emplace(name, handle);
  return handle;
}

void TensorTable::Erase(TensorHandle handle) {
  NodeTensor& tensor = tensors_[handle.value()];
  by_name_.erase(tensor.name);
  tensor = NodeTensor();
  free_.push_back(handle);
}

bool TensorTable::Find(const std::string& name, TensorHandle& handle) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return false;
  handle = found->second;
  return true;
}

}  // namespace ringd
