// The library's own threads, in somebody else's program.
#ifndef RINGD_CLIENT_CORE_WAITING_QUIET_THREAD_H_
#define RINGD_CLIENT_CORE_WAITING_QUIET_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace ringd::client {

// Starts a thread that blocks all signals, so that a program's handlers run in its own threads.
// `name`: 15 characters at most; debuggers and top(1) show it.
//   kResourceExhausted: the system has no thread to give.
absl::StatusOr<std::thread> StartQuietThread(const char* name, std::function<void()> body);

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_QUIET_THREAD_H_
