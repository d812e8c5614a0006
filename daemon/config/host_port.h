// "host:port", as addresses are written in settings and messages.
#ifndef RINGD_DAEMON_CONFIG_HOST_PORT_H_
#define RINGD_DAEMON_CONFIG_HOST_PORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringd {

// A name or an address; an IPv6 address stands in brackets in text and without them here.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

// "node-a:7117", "10.0.0.1:7117", "[fe80::1]:7117", ":7117" (empty host).
//   kInvalidArgument: not of that form.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

std::string FormatHostPort(const HostPort& address);

// True if `text` is "host:port" with a numeric host and a port other than 0, so that nobody has to
// ask a name server for it.
bool IsNumericHostPort(absl::string_view text);

// True for 127.0.0.0/8, ::1 and "localhost".
bool IsLoopback(absl::string_view host);

// True for 0.0.0.0 and ::, which listen on every interface.
bool IsWildcard(absl::string_view host);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_HOST_PORT_H_
