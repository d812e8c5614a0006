#include "daemon/engine_process/engine_transport.h"

#include <string>
#include <utility>

#include "backends/tcp/tcp_transport.h"
#include "backends/ucx/ucx_transport.h"
#include "daemon/logging/log.h"

namespace ringd {

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const Config& config,
                                                         std::unique_ptr<WireSockets> wires,
                                                         LineShares* shares) {
  TransportOptions options;
  options.interfaces = config.data_interfaces;
  options.transports = config.transports;
  options.streams_per_neighbour = config.streams_per_neighbour == kAutoCount
                                      ? kAutoStreams
                                      : static_cast<int>(config.streams_per_neighbour);
  options.log = [](const std::string& line) { LogInfo(line); };
  options.log_error = [](const std::string& line) { LogError(line); };
  options.congestion_control = config.congestion_control;
  options.line_shares = shares;
  if (config.backend == "ucx") return CreateUcxTransport(options);
  if (config.backend == "none" || wires == nullptr) return std::unique_ptr<Transport>();
  return CreateTcpTransport(options, std::move(wires));
}

}  // namespace ringd
