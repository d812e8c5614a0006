// What stands in where a request brings no accessor.
#ifndef RINGD_BACKENDS_COLLECTIVES_IN_PLACE_ACCESSOR_H_
#define RINGD_BACKENDS_COLLECTIVES_IN_PLACE_ACCESSOR_H_

#include <cstddef>

#include "backends/collective_request.h"

namespace ringd {

// Input and result are the request's buffer.
//
// Thread safety: as BufferAccessor.
// Ownership: none; the buffer is the request's.
class InPlaceAccessor final : public BufferAccessor {
 public:
  InPlaceAccessor() = default;
  explicit InPlaceAccessor(const CollectiveRequest& request) noexcept
      : data_type_(request.data_type), op_(request.op), buffer_(request.buffer) {}

  const std::byte* Input(std::size_t begin, std::size_t end) noexcept override;
  bool AddInput(std::size_t begin, std::size_t end, const std::byte* partial) noexcept override;
  const std::byte* AddLastInput(std::size_t begin, std::size_t end,
                                const std::byte* partial) noexcept override;
  void OnCombined(std::size_t begin, std::size_t end) noexcept override;
  const std::byte* OnResult(std::size_t begin, std::size_t end, const std::byte* result,
                            bool keep) noexcept override;

 private:
  DataType data_type_ = DataType::kFloat32;
  ReduceOp op_ = ReduceOp::kSum;
  std::byte* buffer_ = nullptr;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_IN_PLACE_ACCESSOR_H_
