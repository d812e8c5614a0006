// What a rank that has failed says of itself: LeaveRequest.failure.
#ifndef RINGD_PROTO_TYPES_FAILURE_WORDS_H_
#define RINGD_PROTO_TYPES_FAILURE_WORDS_H_

#include <cstddef>

namespace ringd {

// More are cut off.
inline constexpr std::size_t kMostFailureBytes = 512;

}  // namespace ringd

#endif  // RINGD_PROTO_TYPES_FAILURE_WORDS_H_
