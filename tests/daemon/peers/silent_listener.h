// A TCP port at which connections succeed and nothing is ever said.
#ifndef RINGD_TESTS_DAEMON_PEERS_SILENT_LISTENER_H_
#define RINGD_TESTS_DAEMON_PEERS_SILENT_LISTENER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>

#include "proto/base/unique_fd.h"

namespace ringd {

class SilentListener {
 public:
  SilentListener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(socket_.get(), generic, length) == 0);
    REQUIRE(::listen(socket_.get(), 16) == 0);
    REQUIRE(::getsockname(socket_.get(), generic, &length) == 0);
    port_ = ntohs(address.sin_port);
  }

  std::string Target() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  UniqueFd socket_;
  int port_ = 0;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_PEERS_SILENT_LISTENER_H_
