#include "backends/tcp/wire_address.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ringd {
namespace {

constexpr char kBetween = ',';
// A host's name has 255 at most, and there is a port.
constexpr std::size_t kMaxHostPortBytes = 256;

bool IsHostAndPort(absl::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (address.size() > kMaxHostPortBytes || colon == absl::string_view::npos || colon == 0) {
    return false;
  }
  std::uint32_t port = 0;
  return absl::SimpleAtoi(address.substr(colon + 1), &port) && port > 0 && port <= 65535;
}

std::vector<absl::string_view> Split(absl::string_view address) {
  return absl::StrSplit(address, kBetween);
}

}  // namespace

std::string JoinWireAddress(const std::vector<std::string>& host_ports) {
  return absl::StrJoin(host_ports, absl::string_view(&kBetween, 1));
}

bool IsWireAddress(absl::string_view address) {
  if (address.size() > kMostWireInterfaces * (kMaxHostPortBytes + 1)) return false;
  const std::vector<absl::string_view> parts = Split(address);
  return parts.size() <= kMostWireInterfaces &&
         std::all_of(parts.begin(), parts.end(), &IsHostAndPort);
}

absl::string_view FirstHostOf(absl::string_view address) {
  const absl::string_view first = Split(address)[0];
  return first.substr(0, first.rfind(':'));
}

std::size_t CommonInterfaces(absl::string_view one, absl::string_view other) {
  return std::min(Split(one).size(), Split(other).size());
}

std::string AddressForStream(absl::string_view own, absl::string_view peer, std::uint32_t stream) {
  const std::size_t interface = stream == 0 ? 0 : (stream - 1) % CommonInterfaces(own, peer);
  return std::string(Split(peer)[interface]);
}

}  // namespace ringd
