#include "daemon/rpc/refusing_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

constexpr int kSoonMs = 30'000;

// Reads until the other side has hung up; false: it does not.
bool HangsUp(const UniqueFd& socket) {
  char bytes[4096];
  for (;;) {
    pollfd entry{socket.get(), POLLIN, 0};
    if (::poll(&entry, 1, kSoonMs) != 1) return false;
    if (::recv(socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT) <= 0) return true;
  }
}

TEST_CASE("RefusingServer: who says nothing, or rubbish, or no end of it, is hung up on") {
  const std::string said = GENERATE("", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "rubbish");
  const auto server = RefusingServer::Start();
  REQUIRE(server.ok());
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  // Somebody else has it, too: the attach listener.
  const UniqueFd kept(::dup(ends->first.get()));
  (*server)->AddConnection(std::move(ends->first));
  CHECK(::send(ends->second.get(), said.data(), said.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(said.size()));
  CHECK(HangsUp(ends->second));
}

TEST_CASE("RefusingServer: stopping hangs up, also on those who come later") {
  const auto server = RefusingServer::Start();
  REQUIRE(server.ok());
  std::vector<UniqueFd> far;
  for (int i = 0; i < 3; ++i) {
    if (i == 2) (*server)->Stop();
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    (*server)->AddConnection(std::move(ends->first));
    far.push_back(std::move(ends->second));
  }
  for (const UniqueFd& socket : far) CHECK(HangsUp(socket));
  (*server)->Stop();
}

}  // namespace
}  // namespace ringd
