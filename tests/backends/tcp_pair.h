// Both ends of a TCP connection over the loopback interface.
#ifndef RINGD_TESTS_BACKENDS_TCP_PAIR_H_
#define RINGD_TESTS_BACKENDS_TCP_PAIR_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "proto/base/unique_fd.h"

namespace ringd {

// Ownership: owns both descriptors.
struct TcpPair {
  TcpPair() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    one = UniqueFd(::socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(::connect(one.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    other = UniqueFd(::accept(listener.get(), nullptr, nullptr));
    REQUIRE(other.valid());
  }

  UniqueFd one;
  UniqueFd other;
};

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_TCP_PAIR_H_
