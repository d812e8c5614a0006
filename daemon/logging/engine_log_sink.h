// Where an engine's log lines go.
#ifndef RINGD_DAEMON_LOGGING_ENGINE_LOG_SINK_H_
#define RINGD_DAEMON_LOGGING_ENGINE_LOG_SINK_H_

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <mutex>

#include "daemon/logging/log.h"

namespace ringd {

// Writes each line as a record (engine_log.h) with one write, and keeps nothing: what was logged
// before a crash is with the supervisor. Where `fd` is a socket that does not block, records that
// find no room are dropped; the next one that finds some is preceded by one that tells how many.
//
// Thread safety: all methods from any thread.
// Ownership: borrows the descriptor.
class EngineLogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit EngineLogSink(int fd) noexcept : fd_(fd) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}
  bool Write(const std::string& record) const noexcept;

  const int fd_;
  std::uint64_t dropped_ = 0;  // behind base_sink's mutex
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LOGGING_ENGINE_LOG_SINK_H_
