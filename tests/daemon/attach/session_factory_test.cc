#include "daemon/attach/session_factory.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <utility>

#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

// True where the kernel lets a socket refuse descriptors (Linux 6.16): every socket says then
// whether it does.
bool KernelCanRefuse(int socket) {
#ifndef SO_PASSRIGHTS
  constexpr int SO_PASSRIGHTS = 83;  // NOLINT(readability-identifier-naming): the kernel's
#endif
  int passes = 0;
  socklen_t length = sizeof(passes);
  return ::getsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &passes, &length) == 0;
}

TEST_CASE("MakeSession: over its gRPC connection a trainer sends bytes, and no descriptors") {
  auto connection = UnixSocketPair();
  REQUIRE(connection.ok());
  PeerCredentials self;
  self.pid = ::getpid();
  const auto made = MakeSession(SessionId(1), {1 << 20, 16}, self, connection->second.get());
  REQUIRE(made.ok());
  const int trainer = made->reply_fds[kGrpcFd].get();
  const std::array<std::byte, 1> byte{};
  const auto at_once = Clock::now();
  CHECK(SendWithFds(trainer, byte, {}, at_once).ok());
  if (!KernelCanRefuse(trainer)) {
    WARN("this kernel is older than 6.16");
    return;
  }
  const std::array<int, 1> own = {trainer};
  CHECK(absl::IsPermissionDenied(SendWithFds(trainer, byte, own, at_once)));
}

}  // namespace
}  // namespace ringd
