#include "daemon/engine/run_queue.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// A file that looks like /proc/loadavg, or should.
struct LoadFile {
  LoadFile() : fd(::mkstemp(path)) { REQUIRE(fd.valid()); }
  ~LoadFile() { ::unlink(path); }
  void Write(const std::string& text) const {
    REQUIRE(::ftruncate(fd.get(), 0) == 0);
    REQUIRE(::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }

  char path[24] = "/tmp/loadavgXXXXXX";
  UniqueFd fd;
};

const Clock::time_point kStart = Clock::time_point(std::chrono::seconds(1000));

TEST_CASE("RunQueue: is crowded unless a processor is left over") {
  const LoadFile file;
  RunQueue queue(file.path, 4);
  file.Write("0.52 0.58 0.59 3/467 12345\n");
  CHECK_FALSE(queue.IsCrowded(kStart));
  file.Write("0.52 0.58 0.59 4/467 12345\n");
  CHECK(queue.IsCrowded(kStart + RunQueue::kLookInterval));
}

TEST_CASE("RunQueue: looks at intervals") {
  const LoadFile file;
  RunQueue queue(file.path, 4);
  file.Write("0.52 0.58 0.59 1/467 12345\n");
  CHECK_FALSE(queue.IsCrowded(kStart));
  file.Write("0.52 0.58 0.59 50/467 12345\n");
  CHECK_FALSE(queue.IsCrowded(kStart + RunQueue::kLookInterval / 2));
  CHECK(queue.IsCrowded(kStart + RunQueue::kLookInterval));
}

TEST_CASE("RunQueue: what it can't read is crowded") {
  const LoadFile file;
  const std::string text = GENERATE("", "0.52", "0.52 0.58 0.59 ", "0.52 0.58 0.59 -/467",
                                    "0.52 0.58 0.59 1", "0.52 0.58 0.59 1 467");
  file.Write(text);
  CHECK(RunQueue(file.path, 4).IsCrowded(kStart));
  CHECK(RunQueue(file.path, 4).is_known());
  CHECK(RunQueue("/nowhere/loadavg", 4).IsCrowded(kStart));
  CHECK_FALSE(RunQueue("/nowhere/loadavg", 4).is_known());
}

TEST_CASE("RunQueue: reads this machine's") {
  // This thread runs.
  CHECK(RunQueue("/proc/loadavg", 1).IsCrowded(kStart));
  CHECK_FALSE(RunQueue("/proc/loadavg", 1'000'000).IsCrowded(kStart));
}

}  // namespace
}  // namespace ringd
