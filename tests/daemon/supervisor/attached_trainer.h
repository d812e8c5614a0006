// What an attach leaves on both sides.
#ifndef RINGD_TESTS_DAEMON_SUPERVISOR_ATTACHED_TRAINER_H_
#define RINGD_TESTS_DAEMON_SUPERVISOR_ATTACHED_TRAINER_H_

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "daemon/attach/session_factory.h"
#include "daemon/sessions/session_resources.h"
#include "proto/attach/handshake.h"
#include "proto/base/unix_socket.h"

namespace ringd {

struct AttachedTrainer {
  std::unique_ptr<SessionResources> session;
  UniqueFd lifeline;               // the trainer's end
  std::weak_ptr<const int> place;  // expired: the session has ended
  std::string token;

  explicit AttachedTrainer(std::uint32_t number) {
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    auto made = MakeSession(SessionId(number), {1 << 20, 16}, {::getpid(), ::getuid(), 0},
                            ends->first.get());
    REQUIRE(made.ok());
    session = std::move(made->resources);
    session->lifeline = std::move(ends->first);
    const auto kept = std::make_shared<const int>(0);
    place = kept;
    session->admission = kept;
    lifeline = std::move(ends->second);
    token = session->token;
  }

  // Waits until ringd has hung up, and returns what was said on the lifeline before.
  std::string LastWords() const {
    std::string text;
    char buffer[4096];
    for (;;) {
      pollfd entry{lifeline.get(), POLLIN, 0};
      if (::poll(&entry, 1, 10'000) != 1) return "still there";
      const ssize_t count = ::recv(lifeline.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
      if (count <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(count));
    }
  }
  bool Ended() const {
    for (int i = 0; i < 1000 && !place.expired(); ++i) ::poll(nullptr, 0, 10);
    return place.expired();
  }
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_SUPERVISOR_ATTACHED_TRAINER_H_
