// The scheduler's time: always passed in, never read from a clock here.
#ifndef RINGD_DAEMON_SCHEDULE_PROTOCOL_SCHEDULE_TIME_H_
#define RINGD_DAEMON_SCHEDULE_PROTOCOL_SCHEDULE_TIME_H_

#include <chrono>

namespace ringd {

using TimePoint = std::chrono::steady_clock::time_point;

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PROTOCOL_SCHEDULE_TIME_H_
