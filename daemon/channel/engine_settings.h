// Settings on their way to an engine: as texts, which the table of settings writes and reads.
#ifndef RINGD_DAEMON_CHANNEL_ENGINE_SETTINGS_H_
#define RINGD_DAEMON_CHANNEL_ENGINE_SETTINGS_H_

#include "absl/status/statusor.h"
#include "daemon/config/config.h"
#include "proto/rpc/engine.pb.h"

namespace ringd {

using EngineSettings = google::protobuf::RepeatedPtrField<v1::EngineSetting>;

// All of them.
void WriteSettings(const Config& config, EngineSettings* settings);

//   kInvalidArgument: one is not known, or its text not allowed; the message names it.
absl::StatusOr<Config> ReadSettings(const EngineSettings& settings);

}  // namespace ringd

#endif  // RINGD_DAEMON_CHANNEL_ENGINE_SETTINGS_H_
