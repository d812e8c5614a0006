// What a message takes in memory before it is parsed: it may be many times its bytes.
#ifndef RINGD_DAEMON_SUPERVISOR_PART_COUNT_H_
#define RINGD_DAEMON_SUPERVISOR_PART_COUNT_H_

#include <google/protobuf/descriptor.h>

#include <cstddef>

#include "absl/strings/string_view.h"

namespace ringd {

// What becomes an object of its own when bytes are parsed: messages and strings, which take much
// more memory than bytes on the wire.
struct PartCount {
  std::size_t all = 0;
  std::size_t rows = 0;  // those that are in no other: jobs, communicators
};

// Of `bytes` as a `type`. Stops beyond `most`. What is malformed is counted up to there.
PartCount CountParts(const google::protobuf::Descriptor& type, absl::string_view bytes,
                     std::size_t most);

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_PART_COUNT_H_
