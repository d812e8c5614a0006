// ringd as a process: how it starts, what it tells, how it ends.
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/service/exit_code.h"
#include "proto/attach/handshake.h"
#include "proto/base/unix_socket.h"
#include "tests/daemon/attach/listener_fixture.h"
#include "tests/daemon/service/ringd_process.h"

namespace ringd {
namespace {

using Catch::Contains;

TEST_CASE(
    "ringd: says where it serves, feeds the watchdog, and SIGTERM ends an idle one in order") {
  RingdProcess ringd;
  ringd.Start();
  REQUIRE(ringd.WaitForNotification("READY=1"));
  const nlohmann::json ready = nlohmann::json::parse(ReadWholeFile(ringd.ready_file()));
  CHECK(ready["pid"] == ringd.pid());
  CHECK(ready["socket"] == ringd.socket());
  CHECK_THAT(ready["peer_address"].get<std::string>(), Catch::StartsWith("127.0.0.1:"));
  CHECK(ready["peer_address"] != "127.0.0.1:0");
  // Twice: the engine's heart goes on beating while there is nothing to do.
  CHECK(ringd.WaitForNotification("WATCHDOG=1"));
  CHECK(ringd.WaitForNotification("WATCHDOG=1"));
  ringd.Signal(SIGTERM);
  CHECK(ringd.WaitForNotification("STOPPING=1"));
  CHECK(ringd.WaitForExit() == kExitDone);
  CHECK_FALSE(std::filesystem::exists(ringd.socket()));
  CHECK_FALSE(std::filesystem::exists(ringd.ready_file()));
}

TEST_CASE(
    "ringd: SIGTERM waits for the trainers, refuses new ones, and a second one stops at once") {
  RingdProcess ringd;
  ringd.Start();
  REQUIRE(ringd.WaitForNotification("READY=1"));
  const auto trainer = ConnectUnix(ringd.socket(), InSeconds(10));
  REQUIRE(trainer.ok());
  REQUIRE(RequestAttach(trainer->get())->code() == absl::StatusCode::kOk);
  ringd.Signal(SIGTERM);
  REQUIRE(ringd.WaitForNotification("STOPPING=1\nSTATUS=draining"));
  const auto late = ConnectUnix(ringd.socket(), InSeconds(10));
  REQUIRE(late.ok());
  CHECK(RequestAttach(late->get())->code() == absl::StatusCode::kFailedPrecondition);

  ringd.Signal(SIGTERM);
  CHECK(ringd.WaitForExit() == kExitDone);
  // The trainer is told why before its lifeline ends.
  NoticeHeader notice{};
  REQUIRE(
      ReceiveWithFds(trainer->get(), std::as_writable_bytes(std::span(&notice, 1)), InSeconds(5))
          .ok());
  CHECK(notice.kind == static_cast<std::uint32_t>(NoticeKind::kSessionEnded));
  std::string text(notice.text_length, '\0');
  REQUIRE(
      ReceiveWithFds(trainer->get(), std::as_writable_bytes(std::span(text)), InSeconds(5)).ok());
  CHECK_THAT(text, Contains("was stopped"));
}

TEST_CASE("ringd: what it was asked to print and can't is told") {
  const std::string action = GENERATE("--help", "--version", "--print-config");
  const std::string command = "daemon/ringd --config /dev/null " + action + " >/dev/full 2>&1";
  CHECK(WEXITSTATUS(std::system(command.c_str())) == kExitFailed);
}

TEST_CASE("ringd: a drain ends when the last trainer has gone, or when drain_timeout has passed") {
  for (const bool leaves : {true, false}) {
    RingdProcess ringd;
    ringd.Start({"--drain-timeout", leaves ? "0" : "300ms"});
    REQUIRE(ringd.WaitForNotification("READY=1"));
    auto trainer = ConnectUnix(ringd.socket(), InSeconds(10));
    REQUIRE(trainer.ok());
    REQUIRE(RequestAttach(trainer->get())->code() == absl::StatusCode::kOk);
    ringd.Signal(SIGTERM);
    REQUIRE(ringd.WaitForNotification("STOPPING=1"));
    // Else systemd kills it before the trainers have gone.
    REQUIRE(ringd.WaitForNotification("EXTEND_TIMEOUT_USEC=60000000"));
    if (leaves) trainer->Reset();
    CHECK(ringd.WaitForExit() == kExitDone);
  }
}

TEST_CASE("ringd: a drain_timeout that is read amid a drain counts from when that began") {
  RingdProcess ringd;
  const std::string config = ringd.file("ringd.toml");
  std::ofstream(config) << "drain_timeout = 0\n";
  ringd.Start({"--config", config});
  REQUIRE(ringd.WaitForNotification("READY=1"));
  auto trainer = ConnectUnix(ringd.socket(), InSeconds(10));
  REQUIRE(trainer.ok());
  REQUIRE(RequestAttach(trainer->get())->code() == absl::StatusCode::kOk);
  ringd.Signal(SIGTERM);
  REQUIRE(ringd.WaitForNotification("STOPPING=1"));
  std::ofstream(config) << "drain_timeout = \"300ms\"\n";
  ringd.Signal(SIGHUP);
  CHECK(ringd.WaitForExit() == kExitDone);
  CHECK_THAT(ringd.log(), Contains("settings taken over: drain_timeout") &&
                              Contains("drain_timeout has passed"));
}

TEST_CASE("ringd: a second one on the same socket fails and says so; after a kill it is replaced") {
  RingdProcess first;
  first.Start();
  REQUIRE(first.WaitForNotification("READY=1"));
  RingdProcess second;
  second.Start({"--socket", first.socket()});
  CHECK(second.WaitForExit() == kExitUsage);  // a flag given twice
  second.Run({"daemon/ringd", "--socket", first.socket(), "--peer-address", "127.0.0.1:0"});
  CHECK(second.WaitForExit() == kExitFailed);
  CHECK_THAT(second.log(), Contains("another process listens on " + first.socket()));

  first.Signal(SIGKILL);
  first.WaitForExit();
  CHECK(std::filesystem::exists(first.socket()));
  first.Start();
  CHECK(first.WaitForNotification("READY=1"));
}

TEST_CASE("ringd: a wrong configuration ends with the usage code and names file, line and key") {
  RingdProcess ringd;
  std::ofstream(ringd.file("ringd.toml")) << "socket = \"/tmp/s\"\nstall_warning = \"soon\"\n";
  ringd.Run({"daemon/ringd", "--config", ringd.file("ringd.toml"), "--check-config"});
  CHECK(ringd.WaitForExit() == kExitUsage);
  CHECK_THAT(ringd.log(), Contains("ringd.toml:2: stall_warning = \"soon\" is refused"));
}

TEST_CASE("ringd: without its engine's program neither the check nor the start is good") {
  for (const bool check : {true, false}) {
    RingdProcess ringd;
    const std::string none = ringd.file("ringd-engine");
    if (check) {
      ringd.Run({"daemon/ringd", "--config", "/dev/null", "--check-config", "--engine-program",
                 none.c_str()});
    } else {
      ringd.Start({"--engine-program", none});
    }
    CHECK(ringd.WaitForExit() == kExitFailed);
    CHECK_THAT(ringd.log(),
               Contains(none + ": No such file") && Contains("install ringd-engine beside ringd"));
  }
}

TEST_CASE("ringd: the example configuration is good") {
  RingdProcess ringd;
  ringd.Run({"daemon/ringd", "--config", "deploy/ringd.toml", "--check-config", "--allowed-groups",
             ""});  // the one that it names is the package's to make
  CHECK(ringd.WaitForExit() == kExitDone);
  CHECK_THAT(ringd.log(), Contains("the configuration is good"));
}

TEST_CASE(
    "ringd: names that the kernel, UCX or the machine do not know are told by the check, too") {
  struct Case {
    const char* flag;
    const char* value;
    const char* message;
  };
  for (const Case& wrong : {
           Case{"--congestion-control", "nonsense", "does not let this process use 'nonsense'"},
           Case{"--transports", "rubbish", "UCX finds no way to send: transports \"rubbish\""},
           Case{"--data-interfaces", "nowhere0", "no interface 'nowhere0'"},
       }) {
    INFO(wrong.flag);
    RingdProcess check;
    check.Run({"daemon/ringd", "--config", "/dev/null", "--check-config", wrong.flag, wrong.value});
    CHECK(check.WaitForExit() == kExitFailed);
    CHECK_THAT(check.log(), Contains(wrong.message) && !Contains("is good"));

    RingdProcess start;
    // An interface may come yet.
    start.Start({wrong.flag, wrong.value, "--link-timeout", "1s"});
    CHECK(start.WaitForExit() == kExitFailed);
    CHECK_THAT(start.log(), Contains(wrong.message));
  }
  RingdProcess unused;
  unused.Run({"daemon/ringd", "--config", "/dev/null", "--check-config", "--backend", "none",
              "--transports", "rubbish"});
  CHECK(unused.WaitForExit() == kExitDone);
}

TEST_CASE("ringd: the check says once that peer_address is not of this machine") {
  RingdProcess check;
  check.Run({"daemon/ringd", "--config", "/dev/null", "--check-config", "--peer-address",
             "192.0.2.77:7117"});
  CHECK(check.WaitForExit() == kExitFailed);
  const std::string log = check.log();
  CHECK_THAT(log, Contains("no interface of this machine has '192.0.2.77'"));
  CHECK(log.find("peer_address") == log.rfind("peer_address"));
}

TEST_CASE("ringd: a cluster key that others could read is refused, by the check and by the start") {
  RingdProcess ringd;
  const std::string key = ringd.file("cluster.key");
  std::ofstream(key) << std::string(64, 'k') << "\n";
  REQUIRE(::chmod(key.c_str(), 0640) == 0);
  ringd.Run({"daemon/ringd", "--config", "/dev/null", "--check-config", "--cluster-key-file",
             key.c_str()});
  CHECK(ringd.WaitForExit() == kExitFailed);
  CHECK_THAT(ringd.log(), Contains(key) && Contains("others must not read it"));

  RingdProcess start;
  start.Start({"--cluster-key-file", key.c_str()});
  CHECK(start.WaitForExit() == kExitFailed);
  CHECK_THAT(start.log(), Contains("others must not read it"));

  REQUIRE(::chmod(key.c_str(), 0600) == 0);
  RingdProcess good;
  good.Start({"--cluster-key-file", key.c_str(), "--insecure-peers", "true"});
  CHECK(good.WaitForNotification("READY=1"));
  CHECK_THAT(good.log(), Contains("insecure_peers is true"));
}

TEST_CASE("ringd: SIGHUP tells systemd when it begins and when it has ended") {
  RingdProcess ringd;
  ringd.Start();
  REQUIRE(ringd.WaitForNotification("READY=1"));
  ringd.Signal(SIGHUP);
  CHECK(ringd.WaitForNotification("RELOADING=1\nMONOTONIC_USEC="));
  CHECK(ringd.WaitForNotification("READY=1\nSTATUS=serving"));
  CHECK_THAT(ringd.log(), Contains("settings taken over: none has changed"));
}

TEST_CASE("ringd: a log file that can't be reopened is told, and not as reopened") {
  RingdProcess ringd;
  const std::string folder = ringd.file("logs");
  std::filesystem::create_directory(folder);
  ringd.Start({"--log-file", folder + "/log"});
  REQUIRE(ringd.WaitForNotification("READY=1"));
  std::filesystem::rename(folder, folder + ".old");
  SECTION("its folder has gone") {}
  SECTION("it is a pipe that nobody reads") {
    std::filesystem::create_directory(folder);
    REQUIRE(::mkfifo((folder + "/log").c_str(), 0600) == 0);
  }
  ringd.Signal(SIGHUP);
  CHECK(ringd.WaitForNotification("READY=1\nSTATUS=serving"));
  const std::string log = ReadWholeFile(folder + ".old/log");
  CHECK_THAT(log, Contains("can't be reopened, the old one is kept") &&
                      Contains("SIGHUP: settings taken over: none has changed"));
}

TEST_CASE("ringd: an idle one uses next to no processor time") {
  RingdProcess ringd;
  ringd.Start();
  REQUIRE(ringd.WaitForNotification("READY=1"));
  const auto ticks = [&ringd] {
    std::istringstream stat(ReadWholeFile("/proc/" + std::to_string(ringd.pid()) + "/stat"));
    std::string field;
    for (int i = 0; i < 13; ++i) stat >> field;
    long user = 0, system = 0;
    stat >> user >> system;
    return user + system;
  };
  // A tick is 10 ms: at most 1 % of a core, once the start's own work is done.
  long used = 3;
  for (int window = 0; window < 10 && used > 2; ++window) {
    const long before = ticks();
    ::poll(nullptr, 0, 2000);
    used = ticks() - before;
  }
  CHECK(used <= 2);
}

}  // namespace
}  // namespace ringd
