#include "client/core/waiting/quiet_thread.h"

#include <pthread.h>

#include <cassert>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/core/waiting/signals_blocked.h"

namespace ringd::client {
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
