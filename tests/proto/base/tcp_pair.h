// TCP connections inside one process, and such as can't be closed at once.
#ifndef RINGD_TESTS_PROTO_BASE_TCP_PAIR_H_
#define RINGD_TESTS_PROTO_BASE_TCP_PAIR_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "proto/base/unique_fd.h"

namespace ringd::testing {

// Far more than a test's steps take, and less than a test may: one that fails ends.
inline constexpr int kLingerSeconds = 40;

// The two ends of a connection over the loopback interface, as the ringds open it.
inline std::array<UniqueFd, 2> TcpPair() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  REQUIRE(::bind(listener.get(), any, length) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), any, &length) == 0);
  UniqueFd first(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(first.get(), any, length) == 0);
  UniqueFd second(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(second.valid());
  return {std::move(first), std::move(second)};
}

// Sends more than the other end, which does not read, has room for: its last close waits for
// kLingerSeconds.
inline void MakeLinger(int socket) {
  const std::vector<char> bytes(1 << 16);
  while (::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  const linger option{1, kLingerSeconds};
  REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_LINGER, &option, sizeof(option)) == 0);
}

}  // namespace ringd::testing

#endif  // RINGD_TESTS_PROTO_BASE_TCP_PAIR_H_
