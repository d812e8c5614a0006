#include "daemon/supervisor/engine_logs.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/absent_page.h"
#include "tests/count_descriptors.h"
#include "tests/daemon/supervisor/captured_log.h"

namespace ringd {
namespace {

std::unique_ptr<EngineLogs> Create() {
  auto logs = EngineLogs::Create();
  REQUIRE(logs.ok());
  return *std::move(logs);
}

EngineLogs::Ends NewEnds() {
  auto ends = EngineLogs::MakeEnds();
  REQUIRE(ends.ok());
  return *std::move(ends);
}

void Write(const UniqueFd& writer, const std::string& text) {
  REQUIRE(::write(writer.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

TEST_CASE("EngineLogs: lines of all engines come as they are written, marked") {
  const CapturedLog log;
  const auto logs = Create();
  EngineLogs::Ends first = NewEnds();
  EngineLogs::Ends second = NewEnds();
  const auto a = logs->Add(11, std::move(first.reader));
  const auto b = logs->Add(12, std::move(second.reader));
  CHECK(a != b);
  Write(first.writer, "one\n");
  log.Await(1);
  Write(second.writer, "two\n");
  log.Await(2);
  Write(first.writer, "three\n");
  const auto lines = log.Await(3);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0]["engine"] == 11);
  CHECK(lines[1]["message"] == "two");
  CHECK(lines[1]["engine"] == 12);
  CHECK(lines[2]["engine"] == 11);
  CHECK(logs->LastLine(a) == "three");
  CHECK(logs->LastLine(b) == "two");
}

TEST_CASE("EngineLogs: all engines of a user have one limit of lines, and others' have theirs") {
  const CapturedLog log;
  const auto logs = Create();
  std::string lines;
  for (std::uint32_t i = 0; i < EngineLogReader::kLines; ++i) lines += "line\n";
  for (const auto& [pid, uid] : {std::pair(11, 1000), std::pair(12, 1000), std::pair(13, 1001)}) {
    EngineLogs::Ends ends = NewEnds();
    const auto id = logs->Add(pid, std::move(ends.reader));
    logs->BelongsTo(id, static_cast<uid_t>(uid), "job");
    Write(ends.writer, lines);
    logs->Finish(id);
  }
  std::map<int, std::uint32_t> logged;
  for (const auto& line : log.Lines()) {
    if (line["message"] == "line") ++logged[line["engine"].get<int>()];
  }
  CHECK(logged ==
        std::map<int, std::uint32_t>{{11, EngineLogReader::kLines}, {13, EngineLogReader::kLines}});
}

TEST_CASE("EngineLogs: Finish logs what is left, the unended line too, and tells the last one") {
  const CapturedLog log;
  const auto logs = Create();
  EngineLogs::Ends ends = NewEnds();
  const auto id = logs->Add(11, std::move(ends.reader));
  std::string all;
  for (int i = 0; i < 500; ++i) all += "line " + std::to_string(i) + "\n";
  Write(ends.writer, all + "last words");
  // Also if the socket stays open: a child of the engine may have it.
  CHECK(logs->Finish(id) == "last words");
  const auto lines = log.Lines();
  REQUIRE(lines.size() == 501);
  for (int i = 0; i < 500; ++i) {
    CHECK(lines[static_cast<std::size_t>(i)]["message"] == "line " + std::to_string(i));
  }
  CHECK(lines.back()["message"] == "last words");
  CHECK(logs->Finish(id).empty());
  CHECK(logs->LastLine(id).empty());
}

TEST_CASE("EngineLogs: an engine's last line is known after its socket has ended") {
  const CapturedLog log;
  const auto logs = Create();
  EngineLogs::Ends ends = NewEnds();
  const auto id = logs->Add(11, std::move(ends.reader));
  Write(ends.writer, "out of memory");
  ends.writer.Reset();
  CHECK(log.Await(1).size() == 1);
  CHECK(logs->LastLine(id) == "out of memory");
  CHECK(logs->Finish(id) == "out of memory");
  CHECK(log.Lines().size() == 1);
}

TEST_CASE("EngineLogs: one that writes without end does not silence another") {
  const CapturedLog log;
  const auto logs = Create();
  EngineLogs::Ends loud = NewEnds();
  EngineLogs::Ends quiet = NewEnds();
  logs->Add(11, std::move(loud.reader));
  logs->Add(12, std::move(quiet.reader));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const std::string text(4096, '\n');
    while (!stop) {
      if (::write(loud.writer.get(), text.data(), text.size()) < 0 && errno != EAGAIN) return;
    }
  });
  Write(quiet.writer, "heard\n");
  const auto lines = log.Await(1);
  stop = true;
  writer.join();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["engine"] == 12);
}

// As with memory of a file system of the engine's own user.
TEST_CASE("EngineLogs: one whose write waits amid its memory keeps nobody waiting") {
  AbsentPage page;
  if (!page.available()) {
    WARN("skipped: userfaultfd is for root here");
    return;
  }
  const CapturedLog log;
  const auto logs = Create();
  EngineLogs::Ends held_up = NewEnds();
  EngineLogs::Ends other = NewEnds();
  const auto id = logs->Add(11, std::move(held_up.reader));
  Write(held_up.writer, "begun\n");
  log.Await(1);
  std::thread writer([&] {
    // As in an engine it goes on when nobody reads any more.
    ::send(held_up.writer.get(), page.data(), page.bytes(), MSG_NOSIGNAL);
  });
  const bool held = page.IsAwaited();
  auto rest = std::async(std::launch::async, [&] {
    logs->Add(12, std::move(other.reader));
    Write(other.writer, "heard\n");
    logs->BelongsTo(id, 1000, "job");
    log.Await(2);
    return logs->Finish(id);
  });
  const bool goes_on = rest.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  // Nothing may fail before this, or the threads would stay.
  page.Give();
  writer.join();
  CHECK(held);
  CHECK(goes_on);
  CHECK(rest.get() == "begun");
  CHECK(log.Lines().size() == 2);
}

TEST_CASE("EngineLogs: at its end all that was written is logged, and no descriptor is left") {
  const CapturedLog log;
  const std::size_t before = CountDescriptors();
  std::vector<UniqueFd> writers;
  {
    const auto logs = Create();
    for (pid_t pid = 1; pid <= 50; ++pid) {
      EngineLogs::Ends ends = NewEnds();
      logs->Add(pid, std::move(ends.reader));
      Write(ends.writer, "said");
      writers.push_back(std::move(ends.writer));
    }
  }
  writers.clear();
  CHECK(log.Lines().size() == 50);
  CHECK(CountDescriptors() == before);
}

}  // namespace
}  // namespace ringd
