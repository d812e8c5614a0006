#include "backends/collectives/in_place_stages.h"

#include <cstring>

#include "proto/reduce/reduce.h"

namespace ringd {

const std::byte* InPlaceStages::Input(std::size_t begin, std::size_t /*end*/) noexcept {
  return buffer_ + begin;
}

bool InPlaceStages::AddInput(std::size_t begin, std::size_t end,
                             const std::byte* partial) noexcept {
  ReduceInto(data_type_, op_, buffer_ + begin, partial, (end - begin) / SizeOf(data_type_));
  return true;
}

const std::byte* InPlaceStages::AddLastInput(std::size_t begin, std::size_t end,
                                             const std::byte* partial) noexcept {
  AddInput(begin, end, partial);
  return buffer_ + begin;
}

void InPlaceStages::OnCombined(std::size_t /*begin*/, std::size_t /*end*/) noexcept {}

const std::byte* InPlaceStages::OnResult(std::size_t begin, std::size_t end,
                                         const std::byte* result, bool /*keep*/) noexcept {
  if (result != buffer_ + begin) std::memcpy(buffer_ + begin, result, end - begin);
  return buffer_ + begin;
}

}  // namespace ringd
