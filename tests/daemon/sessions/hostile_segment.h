// A trainer that joined in good order and then writes what it likes into its own session segment.
#ifndef RINGD_TESTS_DAEMON_SESSIONS_HOSTILE_SEGMENT_H_
#define RINGD_TESTS_DAEMON_SESSIONS_HOSTILE_SEGMENT_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "client/ringd.h"
#include "proto/base/clock.h"
#include "proto/shm/session_segment.h"

namespace ringd {

// The addresses at which this process has mapped session segments.
inline std::set<std::uintptr_t> MappedSegments() {
  std::set<std::uintptr_t> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:ringd-session-") != std::string::npos) {
      found.insert(std::stoull(line, nullptr, 16));
    }
  }
  return found;
}

// Joins a job of its own, of one rank, and registers a tensor of kElements floats.
class HostileTrainer {
 public:
  static constexpr std::int64_t kElements = 1024;

  HostileTrainer(const std::string& socket, const std::string& job) {
    const std::set<std::uintptr_t> before = MappedSegments();
    ringd_options options{};
    options.struct_size = sizeof(options);
    options.socket = socket.c_str();
    options.job_id = job.c_str();
    options.size = 1;
    options.local_size = 1;
    options.on_warning = [](void*, const char*) {};
    const ringd_status status = ringd_open(&options, &context_);
    INFO(ringd_last_error());
    REQUIRE(status == RINGD_OK);
    ringd_registration registration = 0;
    REQUIRE(TryRegister("tensor", &registration) == RINGD_OK);
    for (const std::uintptr_t address : MappedSegments()) {
      if (before.count(address) == 0) base_ = reinterpret_cast<std::byte*>(address);
    }
    REQUIRE(base_ != nullptr);
    const auto& header = *reinterpret_cast<const SessionHeader*>(base_);
    layout_ = {header.submission_capacity, header.completion_capacity};
    view_ = ViewSessionSegment(base_, layout_);
  }
  ~HostileTrainer() { ringd_close(context_); }
  HostileTrainer(const HostileTrainer&) = delete;
  HostileTrainer& operator=(const HostileTrainer&) = delete;

  const SessionSegmentView& view() const { return view_; }
  std::byte* base() const { return base_; }
  std::uint64_t segment_bytes() const { return layout_.segment_bytes(); }
  std::uint64_t arena_bytes() const { return view_.header->arena_bytes; }

  // A submission that ringd would accept as number `sequence`.
  Submission Honest(std::uint64_t sequence) const {
    Submission record{};
    record.sequence = sequence;
    record.element_count = kElements;
    record.registration = 0;  // ringd's own number for the session's first registration
    return record;
  }

  // Puts `record` where the next one is due and publishes it.
  void Push(const Submission& record) {
    const std::uint64_t at = view_.submission_cursors->produced.load();
    view_.submissions[at % layout_.submission_capacity] = record;
    view_.submission_cursors->produced.store(at + 1);
  }

  // ringd's engine sleeps when there is nothing to do; any call wakes it.
  void Wake() {
    ringd_registration ignored = 0;
    (void)TryRegister("wake", &ignored);
  }

  const std::string& ended_because() const { return ended_because_; }

  // True once ringd has ended the session: it answers no call of it any more.
  bool IsEnded() {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(5);
    for (int i = 0; Clock::now() < deadline; ++i) {
      ringd_registration ignored = 0;
      if (TryRegister("probe" + std::to_string(i), &ignored) != RINGD_OK) {
        ended_because_ = ringd_last_error();
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  ringd_status TryRegister(const std::string& name, ringd_registration* registration) {
    ringd_tensor tensor{};
    tensor.struct_size = sizeof(tensor);
    tensor.name = name.c_str();
    tensor.data_type = RINGD_FLOAT32;
    tensor.dimensions = 1;
    const std::int64_t shape = kElements;
    tensor.shape = &shape;
    return ringd_register(context_, &tensor, 1, registration);
  }

  ringd_context* context_ = nullptr;
  std::string ended_because_;
  std::byte* base_ = nullptr;
  SessionSegmentLayout layout_;
  SessionSegmentView view_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_SESSIONS_HOSTILE_SEGMENT_H_
