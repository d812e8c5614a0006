#include "backends/congestion_control.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/base/read_file.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// TCP_CA_NAME_MAX of the kernel, with the end.
constexpr std::size_t kMaxNameBytes = 16;
constexpr std::size_t kMostWordsBytes = std::size_t{64} << 10;

std::string ControlOf(int fd) noexcept {
  std::array<char, kMaxNameBytes> name{};
  socklen_t length = name.size();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return {};
  return {name.data(), ::strnlen(name.data(), name.size())};
}

bool SetControl(int fd, const std::string& name) noexcept {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

// A sysctl's words; empty if it can't be read.
std::string ReadWords(const char* path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMostWordsBytes);
  return std::string(absl::StripAsciiWhitespace(text.ok() ? *text : ""));
}

}  // namespace

absl::StatusOr<CongestionControl> ChooseCongestionControl(absl::string_view setting) {
  if (setting == "system") return CongestionControl{};
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (setting != "auto") {
    CongestionControl choice{std::string(setting), false};
    if (SetControl(socket.get(), choice.name)) return choice;
    return absl::InvalidArgumentError(absl::StrCat(
        "congestion_control: the kernel does not let this process use '", setting,
        "'. It has loaded ", ReadWords("/proc/sys/net/ipv4/tcp_available_congestion_control"),
        " (tcp_available_congestion_control), and lets everybody use ",
        ReadWords("/proc/sys/net/ipv4/tcp_allowed_congestion_control"),
        " (tcp_allowed_congestion_control)"));
  }
  for (const char* const name : {"cubic", "reno"}) {
    if (SetControl(socket.get(), name)) return CongestionControl{name, true};
  }
  return CongestionControl{};
}

bool ApplyCongestionControl(int fd, const CongestionControl& choice) noexcept {
  if (choice.name.empty()) return false;
  const std::string present = ControlOf(fd);
  if (present == choice.name) return true;
  if (choice.only_bbr && !absl::StartsWith(present, "bbr")) return false;
  return SetControl(fd, choice.name);
}

}  // namespace ringd
