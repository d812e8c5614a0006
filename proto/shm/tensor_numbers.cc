#include "proto/shm/tensor_numbers.h"

namespace ringd {

std::optional<std::uint32_t> TensorNumbers::Hold(const std::string& name) {
  const auto known = numbers_.find(name);
  if (known != numbers_.end()) {
    ++entries_[known->second].holders;
    return known->second;
  }
  const std::optional<std::uint32_t> number = TakeNumber();
  if (!number.has_value()) return std::nullopt;
  Entry& entry = entries_[*number];
  entry.name = name;
  entry.holders = 1;
  numbers_.emplace(name, *number);
  name_bytes_ += name.size();
  return number;
}

std::optional<std::uint32_t> TensorNumbers::TakeNumber() {
  if (entries_.size() < most_) {
    entries_.emplace_back();
    return static_cast<std::uint32_t>(entries_.size() - 1);
  }
  while (!idle_.empty()) {
    const std::uint32_t number = idle_.front();
    idle_.pop_front();
    Entry& entry = entries_[number];
    entry.is_idle = false;
    if (entry.holders != 0) continue;  // it has come again
    numbers_.erase(entry.name);
    name_bytes_ -= entry.name.size();
    return number;
  }
  return std::nullopt;
}

void TensorNumbers::Release(std::uint32_t number) {
  Entry& entry = entries_[number];
  if (--entry.holders != 0 || entry.is_idle) return;
  entry.is_idle = true;
  idle_.push_back(number);
}

std::optional<std::string> TensorNumbers::NameOf(std::uint32_t number) const {
  if (number >= entries_.size()) return std::nullopt;
  return entries_[number].name;
}

std::optional<std::uint32_t> TensorNumbers::Find(const std::string& name) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

}  // namespace ringd
