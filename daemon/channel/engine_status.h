// A status on its way between supervisor and engine.
#ifndef RINGD_DAEMON_CHANNEL_ENGINE_STATUS_H_
#define RINGD_DAEMON_CHANNEL_ENGINE_STATUS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/base/text.h"
#include "proto/rpc/engine_network.pb.h"

namespace ringd {

// Of a text that the other side has written, which is input.
inline constexpr std::size_t kMostStatusBytes = std::size_t{64} << 10;

// A text that is no UTF-8 is cleaned: the other side could not parse the message.
inline void WriteStatus(const absl::Status& status, v1::EngineStatus* message) {
  message->set_code(static_cast<std::int32_t>(status.code()));
  message->set_message(IsUtf8(status.message()) ? std::string(status.message())
                                                : CleanLine(status.message()));
}

// The text is cut to kMostStatusBytes. absl takes any code; one that it does not know is kUnknown.
inline absl::Status ReadStatus(const v1::EngineStatus& message) {
  return {static_cast<absl::StatusCode>(message.code()),
          CutToLength(message.message(), kMostStatusBytes)};
}

}  // namespace ringd

#endif  // RINGD_DAEMON_CHANNEL_ENGINE_STATUS_H_
