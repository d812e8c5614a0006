#include "client/core/waiting/quiet_thread.h"

#include <pthread.h>
#include <signal.h>

#include <cassert>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ringd::client {
namespace {

// All signals blocked for as long as it lives; a thread started meanwhile keeps them blocked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

absl::StatusOr<std::thread> StartQuietThread(const char* name, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    std::thread thread(std::move(body));
    [[maybe_unused]] const int named = ::pthread_setname_np(thread.native_handle(), name);
    assert(named == 0);  // else the name is too long
    return thread;
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("starting a thread: ", error.what()));
  }
}

}  // namespace ringd::client
