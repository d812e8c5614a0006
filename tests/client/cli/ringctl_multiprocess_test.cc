// ringctl and ringd as users meet them: programs.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "proto/base/clock.h"

namespace ringd::cli {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Where Bazel puts them for a test.
constexpr char kRingctl[] = "client/cli/ringctl";
constexpr char kRingd[] = "daemon/ringd";

struct Result {
  int exit_code = -1;
  std::string out;
  std::string err;
};

class Workplace {
 public:
  Workplace() {
    char name[] = "/tmp/ringctl-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    folder = name;
    ::setenv("RINGD_BINARY", std::filesystem::absolute(kRingd).c_str(), 1);
    ::setenv("RINGCTL", std::filesystem::absolute(kRingctl).c_str(), 1);
    // Nobody's: a ringd of this machine must not take part.
    ::setenv("RINGD_SOCKET", (folder + "/none").c_str(), 1);
  }
  ~Workplace() { std::filesystem::remove_all(folder); }

  std::string Read(const std::string& name) const {
    std::ifstream file(folder + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  // ringctl with these arguments, as a shell takes them, started by `through`; ended after a
  // minute.
  Result Ringctl(const std::string& arguments, const std::string& through = "") const {
    const std::string command = "timeout -k 5 60 " + through + " \"$RINGCTL\" " + arguments + " >" +
                                folder + "/out 2>" + folder + "/err </dev/null";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), Read("out"), Read("err")};
  }

  std::string folder;
};

// False for one that has ended and waits to be reaped by whoever adopted it.
bool Exists(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  return !stat.empty() && stat.find(") Z ") == std::string::npos;
}

}  // namespace

TEST_CASE("ringctl: without a ringd it says which socket, what to do, and exits with 3") {
  const Workplace place;
  for (const char* command : {"status", "jobs", "comms", "queues"}) {
    const Result result = place.Ringctl(command);
    CHECK(result.exit_code == 3);
    CHECK(result.out.empty());
    CHECK_THAT(result.err,
               Contains(place.folder + "/none") && Contains("ringd --config /dev/null --socket"));
  }
  CHECK(place.Ringctl("run --socket /tmp/no-such-socket -- true").exit_code == 3);
  const Result version = place.Ringctl("version");
  CHECK(version.exit_code == 0);
  CHECK_THAT(version.out, StartsWith("ringctl ") && Contains("no ringd answers"));
  CHECK(place.Ringctl("frobnicate").exit_code == 2);
}

TEST_CASE("ringctl run: a private ringd serves the ranks and goes with them") {
  const Workplace place;
  const Result result =
      place.Ringctl("run -n 2 -- sh -c 'echo $RINGD_SOCKET; \"$RINGCTL\" status --json >" +
                    place.folder + "/status.$RANK'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  const nlohmann::json status = nlohmann::json::parse(place.Read("status.1"), nullptr, false);
  REQUIRE(status.is_object());
  CHECK(status["schema_version"] == 1);
  CHECK(status["build"].get<std::string>().size() == 12);
  CHECK(status["state"] == "serving");
  CHECK_THAT(result.out, Contains("[1] " + status["socket"].get<std::string>()));
  CHECK_FALSE(Exists(status["pid"].get<pid_t>()));
  CHECK_FALSE(std::filesystem::exists(status["socket"].get<std::string>()));
}

TEST_CASE("ringctl: who finds no ringd is told where the private one of a run answers") {
  const Workplace place;
  // No RINGD_SOCKET, as in the terminal beside the one of the run.
  const Result result =
      place.Ringctl("run -- sh -c 'echo $RINGD_SOCKET; RINGD_SOCKET=" + place.folder +
                    "/none \"$RINGCTL\" jobs 2>&1; echo $?'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const std::string socket = result.out.substr(4, result.out.find('\n') - 4);
  REQUIRE_THAT(socket, StartsWith("/tmp/ringd-"));
  CHECK_THAT(result.out, Contains("--socket " + socket) && Contains("[0] 3\n"));
}

TEST_CASE("ringctl jobs: who finds none is told where the private ringd of a run answers") {
  const Workplace place;
  // The outer one stands for the node's own.
  const std::string inner = R"(RINGD_SOCKET=\$NODE \"$RINGCTL\" jobs; echo at \$RINGD_SOCKET)";
  const Result result = place.Ringctl(
      "run --no-prefix -- sh -c 'NODE=$RINGD_SOCKET \"$RINGCTL\" run --nodes 1 --no-prefix -- sh "
      "-c \"" +
      inner + "\"'");
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  const std::string at = result.out.substr(result.out.find("at /tmp/ringd-") + 3);
  CHECK_THAT(result.out, StartsWith("No jobs on this node.") &&
                             Contains("answers at --socket " + at.substr(0, at.find('\n'))));
}

TEST_CASE("ringctl run: a running ringd is used") {
  const Workplace place;
  // The outer run's ringd is the inner run's running one.
  const Result result = place.Ringctl(
      "run -- sh -c 'echo $RINGD_SOCKET; \"$RINGCTL\" run --no-prefix -- sh -c \"echo "
      "\\$RINGD_SOCKET \\$RINGD_JOB_ID\"'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  std::istringstream words(result.out);
  std::string prefix;
  std::string outer;
  std::string inner;
  words >> prefix >> outer >> prefix >> inner;
  CHECK(outer == inner);
  CHECK_FALSE(outer.empty());
  const Result unused = place.Ringctl(
      "run -- sh -c '\"$RINGCTL\" run --keep --ringd /none --state-dir state -- true'");
  CHECK(unused.exit_code == 0);
  CHECK_THAT(unused.err, Contains("--keep is not used") && Contains("--ringd is not used") &&
                             Contains("--state-dir is not used"));
}

TEST_CASE("ringctl run --nodes: each node has a ringd, and all have one rendezvous") {
  const Workplace place;
  const Result result = place.Ringctl(
      "run --nodes 2 -n 2 --no-prefix -- sh -c '\"$RINGCTL\" status "
      "--json >" +
      place.folder + "/status.$RANK; echo $RINGD_RENDEZVOUS'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  nlohmann::json status[4];
  for (int rank = 0; rank < 4; ++rank) {
    status[rank] =
        nlohmann::json::parse(place.Read("status." + std::to_string(rank)), nullptr, false);
    REQUIRE(status[rank].is_object());
  }
  CHECK(status[0]["node_name"] == "node-0");
  CHECK(status[3]["node_name"] == "node-1");
  CHECK(status[0]["pid"] == status[1]["pid"]);
  CHECK(status[1]["pid"] != status[2]["pid"]);
  const std::string rendezvous = status[0]["peer_address"].get<std::string>() + "\n";
  CHECK(result.out == rendezvous + rendezvous + rendezvous + rendezvous);
}

TEST_CASE("ringctl run: the rank that fails is named and the run fails") {
  const Workplace place;
  const Result result = place.Ringctl(
      "run --nodes 2 -n 1 --grace 0.2 -- sh -c 'test $RANK = 0 || kill -9 $$; sleep 50'");
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, StartsWith("ringctl: rank 1 (pid ") &&
                             Contains("was killed by SIGKILL\n") &&
                             Contains("ringctl ended rank 0 with SIGTERM"));
}

TEST_CASE("ringctl run: a ringd that can't start is shown with its last words") {
  const Workplace place;
  ::setenv("RINGD_BACKEND", "pigeons", 1);
  const Result result = place.Ringctl("run -- true");
  ::unsetenv("RINGD_BACKEND");
  CHECK(result.exit_code == 3);
  CHECK_THAT(result.err, Contains("while it started") && Contains("pigeons"));
}

TEST_CASE("ringctl run --state-dir: a relative path is one from here") {
  const Workplace place;
  const std::string learned = std::filesystem::relative(place.folder + "/learned").string();
  REQUIRE(learned.front() != '/');
  const Result result = place.Ringctl("run --nodes 2 --state-dir " + learned +
                                      " -- sh -c '\"$RINGCTL\" status >/dev/null && touch " +
                                      place.folder + "/learned/node-$RANK/kept'");
  CHECK(result.err == "");
  CHECK(result.exit_code == 0);
  CHECK(std::filesystem::exists(place.folder + "/learned/node-0/kept"));
  CHECK(std::filesystem::exists(place.folder + "/learned/node-1/kept"));
}

TEST_CASE("ringctl run: a folder that can't be written is named before anything is started") {
  const Workplace place;
  std::ofstream(place.folder + "/plain") << "a file";
  for (const std::string option : {"--state-dir", "--log-dir"}) {
    const Result result = place.Ringctl("run --nodes 2 " + option + " " + place.folder +
                                        "/plain/learned -- touch " + place.folder + "/ran");
    CHECK(result.exit_code == 2);
    CHECK(result.err == "ringctl: " + option + ": '" + place.folder +
                            "/plain' can't be written: Not a directory\n");
    CHECK_FALSE(std::filesystem::exists(place.folder + "/ran"));
  }
}

TEST_CASE("ringctl run: a run that fails leaves no empty folders behind") {
  const Workplace place;
  std::filesystem::create_directory(place.folder + "/before");
  const std::string state = "--state-dir " + place.folder + "/before/state/here";
  // The folder for logs is made first.
  std::ofstream(place.folder + "/plain") << "a file";
  CHECK(place
            .Ringctl("run --log-dir " + place.folder + "/logs --state-dir " + place.folder +
                     "/plain -- true")
            .exit_code == 2);
  CHECK_FALSE(std::filesystem::exists(place.folder + "/logs"));
  CHECK(place.Ringctl("run --nodes 2 --ringd /no/such/ringd " + state + " -- true").exit_code == 3);
  CHECK(place.Ringctl("run --nodes 2 --grace 0 " + state + " -- false").exit_code == 1);
  CHECK(std::filesystem::is_empty(place.folder + "/before"));
}

TEST_CASE("ringctl run: signals that whoever started it has ignored") {
  const Workplace place;
  // As nohup does; the rank's parent is ringctl.
  const Result hung_up = place.Ringctl("run -- sh -c 'kill -HUP $PPID; sleep 0.3; echo goes on'",
                                       "env --ignore-signal=HUP");
  CHECK(hung_up.exit_code == 0);
  CHECK(hung_up.out == "[0] goes on\n");
  CHECK(place.Ringctl("run -- true", "env --ignore-signal=CHLD").exit_code == 0);
}

TEST_CASE("ringctl run: more ranks than the limit of descriptors has pipes for") {
  const Workplace place;
  const Result result =
      place.Ringctl("run -n 30 -- sh -c 'ulimit -Sn'", "sh -c 'ulimit -Sn 64; exec \"$@\"' sh");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, Contains("[0] 64\n") && Contains("[29] 64\n"));
}

TEST_CASE("ringctl run: a ringd's place in the environment is not that of private ones") {
  const Workplace place;
  ::setenv("RINGD_PEER_INTERFACE", "eth7", 1);
  ::setenv("RINGD_ADVERTISED_HOST", "no-such-host", 1);
  const Result result = place.Ringctl("run --nodes 2 -- sh -c '\"$RINGCTL\" status --json'");
  ::unsetenv("RINGD_PEER_INTERFACE");
  ::unsetenv("RINGD_ADVERTISED_HOST");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, Contains("127.0.0.1:") && !Contains("no-such-host"));
}

TEST_CASE("ringctl run: nor is that in a file which RINGD_CONFIG names") {
  const Workplace place;
  std::ofstream(place.folder + "/ringd.toml")
      << "peer_interface = \"eth7\"\nadvertised_host = \"no-such-host\"\nstall_warning = \"7s\"\n";
  const bool is_empty = GENERATE(false, true);
  ::setenv("RINGD_CONFIG", is_empty ? "" : (place.folder + "/ringd.toml").c_str(), 1);
  const Result result = place.Ringctl("run --nodes 2 -- sh -c '\"$RINGCTL\" status --json'");
  ::unsetenv("RINGD_CONFIG");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, Contains("127.0.0.1:") && !Contains("no-such-host"));
  if (!is_empty) CHECK_THAT(result.out, Contains("ringd.toml"));
}

TEST_CASE("ringctl: a full disk is told, whatever is written") {
  const Workplace place;
  for (const std::string command : {"completion bash", "version --json", "--help"}) {
    const Result result = place.Ringctl(command, "sh -c 'exec \"$@\" >/dev/full' sh");
    CHECK(result.exit_code == 1);
    CHECK(result.err == "ringctl: standard output can't be written: No space left on device\n");
  }
}

TEST_CASE("ringctl run: whoever lets its whole output stand does not keep it") {
  const Workplace place;
  const Clock::time_point start = Clock::now();
  const std::string unread = R"(bash -c '"$@" > >(exec sleep 40) 2>&1' sh)";
  CHECK(place.Ringctl("run --timeout 1 -- yes", unread).exit_code == 1);
  CHECK(Clock::now() - start < seconds(30));
}

TEST_CASE("ringctl run: nothing outlives a killed ringctl") {
  const Workplace place;
  const bool has_input = GENERATE(true, false);
  const std::string script = "echo $$ >" + place.folder + "/rank; echo $RINGD_SOCKET >" +
                             place.folder + "/socket; \"$RINGCTL\" status --json >" + place.folder +
                             "/status; sleep 50 & echo $! >" + place.folder + "/child; wait";
  const pid_t ringctl = ::fork();
  REQUIRE(ringctl >= 0);
  if (ringctl == 0) {
    if (!has_input) ::close(STDIN_FILENO);
    ::execl(kRingctl, "ringctl", "run", "--", "sh", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  const Clock::time_point started_by = Clock::now() + seconds(30);
  while (place.Read("child").empty() && Clock::now() < started_by) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  REQUIRE_FALSE(place.Read("child").empty());
  const pid_t ringd = nlohmann::json::parse(place.Read("status"), nullptr, false)["pid"];
  const pid_t rank = std::stoi(place.Read("rank"));
  const pid_t child = std::stoi(place.Read("child"));
  const std::filesystem::path socket =
      place.Read("socket").substr(0, place.Read("socket").find('\n'));
  ::kill(ringctl, SIGKILL);
  ::waitpid(ringctl, nullptr, 0);
  const Clock::time_point gone_by = Clock::now() + seconds(30);
  const auto left = [&] {
    return Exists(ringd) || Exists(rank) || Exists(child) ||
           std::filesystem::exists(socket.parent_path().parent_path());
  };
  while (left() && Clock::now() < gone_by) std::this_thread::sleep_for(milliseconds(10));
  CHECK_FALSE(left());
}

}  // namespace ringd::cli
