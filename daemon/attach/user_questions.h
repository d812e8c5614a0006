// Questions to the system's user database, which may not answer for a long time.
#ifndef RINGD_DAEMON_ATTACH_USER_QUESTIONS_H_
#define RINGD_DAEMON_ATTACH_USER_QUESTIONS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "daemon/attach/admission.h"
#include "proto/base/unix_socket.h"

namespace ringd {

// Each question has a thread of its own, of which there are kMostAtOnce at most; further ones wait
// behind these. Answers are kept for a while.
//
// Thread safety: any thread. No method blocks, the destructor included: a thread that waits for the
//   database is left alone.
class UserQuestions {
 public:
  // What is asked, on one of the threads. It uses nothing that might go before it returns.
  using Ask = std::function<UserVerdict(const Admission&, const PeerCredentials&)>;

  static constexpr std::size_t kMostAtOnce = 8;
  // One user may come with many groups.
  static constexpr std::size_t kMostOfUser = 2;
  static constexpr std::size_t kMostKept = 1024;
  static constexpr std::chrono::seconds kKept{5};

  // `on_answer`: there is another answer. Called on any thread, at most once at a time and never
  // after the destructor has begun to return; must not block nor call anything here.
  UserQuestions(Ask ask, std::function<void()> on_answer);
  ~UserQuestions();

  // What is known of the peer, by these settings. If nothing is, asks, unless that has been asked
  // or too much of this user has been; then `on_answer` is a reason to look again.
  std::optional<UserVerdict> Find(const std::shared_ptr<Admission>& admission,
                                  const PeerCredentials& peer);

 private:
  struct State;
  // Shared with threads that still wait for the database.
  const std::shared_ptr<State> state_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_USER_QUESTIONS_H_
