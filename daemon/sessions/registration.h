// A tensor as one session has described it.
#ifndef RINGD_DAEMON_SESSIONS_REGISTRATION_H_
#define RINGD_DAEMON_SESSIONS_REGISTRATION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/rpc/client.pb.h"
#include "proto/types/ids.h"

namespace ringd {

struct Registration {
  CommunicatorId communicator;
  std::string name;
  TensorMeta meta;
  std::uint64_t element_count = 0;
  std::uint64_t bytes = 0;  // of the whole tensor
  // Of this rank's: SourceBytes() and DestinationBytes().
  std::uint64_t source_bytes = 0;
  std::uint64_t destination_bytes = 0;
  // The communicator's own number for the name, and for the meta: found once, at registration.
  std::uint32_t tensor = 0;
  std::uint32_t meta_id = 0;
  std::uint64_t order = 0;  // of an operation that is matched by order: its number
};

// Everything by which two descriptions differ; `meta_key`: MetaKey of its meta.
std::string DescriptionKey(const Registration& registration, const std::string& meta_key);

// What a description takes of ringd's memory, in round figures: of the session; of the job's
// tables, for `count` names of `name_bytes` in all (`queues`: of each, one for each local rank
// whose submissions come to ringd) and once for each meta.
std::uint64_t SessionBytesOf(const Registration& registration);
std::uint64_t TableBytesOfNames(std::size_t count, std::uint64_t name_bytes, std::size_t queues);
std::uint64_t TableBytesOfMeta(const Registration& registration);

inline constexpr std::size_t kMaxTensorNameBytes = 512;
inline constexpr std::size_t kMaxDimensions = 32;

// Checks everything a client can say about a tensor; `size` is the job's number of ranks.
//   kInvalidArgument: names the tensor, the field, its value and what is allowed.
absl::StatusOr<Registration> CheckDescription(const v1::TensorDescription& description, int size);

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_REGISTRATION_H_
