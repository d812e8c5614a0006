#include "backends/collectives/in_place_accessor.h"

#include <cstring>

#include "proto/reduce/reduce.h"

namespace ringd {

const std::byte* InPlaceAccessor::Input(std::size_t begin, std::size_t /*end*/) noexcept {
  return buffer_ + begin;
}

bool InPlaceAccessor::AddInput(std::size_t begin, std::size_t end,
                               const std::byte* partial) noexcept {
  ReduceInto(data_type_, op_, buffer_ + begin, partial, (end - begin) / SizeOf(data_type_));
  return true;
}

const std::byte* InPlaceAccessor::AddLastInput(std::size_t begin, std::size_t end,
                                               const std::byte* partial) noexcept {
  AddInput(begin, end, partial);
  return buffer_ + begin;
}

void InPlaceAccessor::OnCombined(std::size_t /*begin*/, std::size_t /*end*/) noexcept {}

const std::byte* InPlaceAccessor::OnResult(std::size_t begin, std::size_t end,
                                           const std::byte* result, bool /*keep*/) noexcept {
  if (result != buffer_ + begin) std::memcpy(buffer_ + begin, result, end - begin);
  return buffer_ + begin;
}

}  // namespace ringd
