#include "backends/ucx/ucx_address.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ringd {
namespace {

constexpr absl::string_view kMark = "RUX1";
constexpr std::size_t kPrefixBytes = 4 + sizeof(std::uint64_t);

// FNV-1a: against accidents, not against attackers, who can't get here without the job's secret.
std::uint64_t Checksum(absl::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace

std::string WrapWorkerAddress(absl::string_view worker_address) {
  const std::uint64_t checksum = Checksum(worker_address);
  std::string wrapped(kMark);
  wrapped.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  wrapped.append(worker_address.data(), worker_address.size());
  return wrapped;
}

std::optional<absl::string_view> UnwrapWorkerAddress(absl::string_view address) {
  if (address.size() <= kPrefixBytes || address.substr(0, kMark.size()) != kMark) {
    return std::nullopt;
  }
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, address.data() + kMark.size(), sizeof(checksum));
  const absl::string_view worker_address = address.substr(kPrefixBytes);
  if (Checksum(worker_address) != checksum) return std::nullopt;
  return worker_address;
}

}  // namespace ringd
