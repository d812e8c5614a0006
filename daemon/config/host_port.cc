#include "daemon/config/host_port.h"

#include <netdb.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

absl::Status BadAddress() {
  return absl::InvalidArgumentError(
      "an address is host:port with a port of 0 to 65535, such as \"127.0.0.1:7117\" or "
      "\"[::1]:7117\"");
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return BadAddress();
  absl::string_view host = text.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
    if (!absl::StrContains(host, ':')) return BadAddress();
  } else if (host.find_first_of(":[] /\t") != absl::string_view::npos) {
    return BadAddress();
  }
  std::uint32_t port = 0;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) return BadAddress();
  return HostPort{std::string(host), static_cast<std::uint16_t>(port)};
}

std::string FormatHostPort(const HostPort& address) {
  return absl::StrContains(address.host, ':') ? absl::StrCat("[", address.host, "]:", address.port)
                                              : absl::StrCat(address.host, ":", address.port);
}

bool IsNumericHostPort(absl::string_view text) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(text);
  if (!parts.ok() || parts->port == 0) return false;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (::getaddrinfo(parts->host.c_str(), nullptr, &hints, &list) != 0) return false;
  ::freeaddrinfo(list);
  return true;
}

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

bool IsWildcard(absl::string_view host) { return host == "0.0.0.0" || host == "::"; }

}  // namespace ringd
