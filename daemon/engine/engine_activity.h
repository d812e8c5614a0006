// What the engine is doing right now, for whoever finds that it stands still.
#ifndef RINGD_DAEMON_ENGINE_ENGINE_ACTIVITY_H_
#define RINGD_DAEMON_ENGINE_ENGINE_ACTIVITY_H_

#include <atomic>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace ringd {

enum class EngineDoing : std::uint8_t {
  kStarting = 0,
  kSleeping,
  kEvents,
  kCommands,
  kSubmissions,
  kTransport,
  kRankExchange,
  kJob,
  kCoordinating,
  kMessages,
  kCompletions,
  kTick,
};

// "advancing the operations of a job".
constexpr absl::string_view Name(EngineDoing doing) noexcept {
  switch (doing) {
    case EngineDoing::kStarting:
      return "starting";
    case EngineDoing::kSleeping:
      return "sleeping until something happens";
    case EngineDoing::kEvents:
      return "taking note of trainers that went";
    case EngineDoing::kCommands:
      return "answering calls and messages";
    case EngineDoing::kSubmissions:
      return "taking the ranks' submissions";
    case EngineDoing::kTransport:
      return "moving bytes between the nodes";
    case EngineDoing::kRankExchange:
      return "opening exchanges between ranks";
    case EngineDoing::kJob:
      return "advancing the operations of a job";
    case EngineDoing::kCoordinating:
      return "coordinating a job";
    case EngineDoing::kMessages:
      return "sending messages to other nodes";
    case EngineDoing::kCompletions:
      return "telling the ranks what has completed";
    case EngineDoing::kTick:
      return "looking for stalls and deaths";
  }
  return "doing something unknown";
}

// Thread safety: Set: the progress thread. Get: any thread.
class EngineActivity {
 public:
  struct Moment {
    EngineDoing doing = EngineDoing::kStarting;
    std::uint32_t communicator = 0;  // of the job that it is done for; 0: for none in particular
  };

  // One store, of a word that hardly anybody reads.
  void Set(EngineDoing doing, std::uint32_t communicator = 0) noexcept {
    word_.store(std::uint64_t{communicator} << 8 | static_cast<std::uint8_t>(doing),
                std::memory_order_relaxed);
  }
  Moment Get() const noexcept {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    return {static_cast<EngineDoing>(word & 0xff), static_cast<std::uint32_t>(word >> 8)};
  }

 private:
  std::atomic<std::uint64_t> word_{0};
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_ENGINE_ACTIVITY_H_
