#include "daemon/attach/session_factory.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <utility>

#include "proto/base/unix_socket.h"
#include "proto/shm/session_segment.h"

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
    WARN("skipped: this kernel is older than 6.16");
    return;
  }
  const std::array<int, 1> own = {trainer};
  CHECK(absl::IsPermissionDenied(SendWithFds(trainer, byte, own, at_once)));
}

TEST_CASE("MakeSession: what a trainer can write is mapped by whoever asks for that") {
  auto connection = UnixSocketPair();
  REQUIRE(connection.ok());
  PeerCredentials self;
  self.pid = ::getpid();
  const auto made = MakeSession(SessionId(1), {1 << 20, 16}, self, connection->second.get());
  REQUIRE(made.ok());
  SessionResources& session = *made->resources;
  CHECK(session.segment.data() == nullptr);
  CHECK(session.arena.data() == nullptr);
  REQUIRE(session.MapMemory().message() == "");
  CHECK(session.arena.size() == std::size_t{1} << 20);
  CHECK(CheckSessionSegment(*reinterpret_cast<SessionHeader*>(session.segment.data()),
                            session.segment.size())
            .ok());
  const std::byte* const mapped = session.segment.data();
  CHECK(session.MapMemory().ok());
  CHECK(session.segment.data() == mapped);
}

TEST_CASE("MapMemory: memory that is too small, or none, is an error") {
  auto connection = UnixSocketPair();
  REQUIRE(connection.ok());
  PeerCredentials self;
  self.pid = ::getpid();
  const auto made = MakeSession(SessionId(1), {1 << 20, 16}, self, connection->second.get());
  REQUIRE(made.ok());
  SessionResources& session = *made->resources;
  session.arena_bytes = 2 << 20;
  CHECK(absl::IsInvalidArgument(session.MapMemory()));
  CHECK(session.segment.data() == nullptr);
  session.arena_bytes = 1 << 20;
  session.segment_fd.Reset();
  CHECK_FALSE(session.MapMemory().ok());
}

}  // namespace
}  // namespace ringd
