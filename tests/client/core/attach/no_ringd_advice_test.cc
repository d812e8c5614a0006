#include "client/core/attach/no_ringd_advice.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <string>

namespace ringd::client {
namespace {

using Catch::Matchers::Contains;
using Variables = std::map<std::string, std::string>;

constexpr uid_t kRoot = 0;
constexpr uid_t kUser = 1000;

std::string Advice(const std::string& socket, const Places& places, const Variables& variables,
                   uid_t uid) {
  const GetEnvironment get = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  std::string advice = NoRingdAdvice(socket, places, get, uid);
  CHECK_THAT(advice, !Contains("\n"));
  return advice;
}

const Variables kTorchrunVariables = {
    {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};

TEST_CASE("Advice without ringd: root hears of the service, others of a socket of their own") {
  const Places places{1, 2, 1, 2};
  Variables variables = kTorchrunVariables;
  char folder[] = "/tmp/ringd-advice-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string own = std::string(folder) + "/ringd-$(hostname).sock";
  variables["HOME"] = folder;
  const std::string root = Advice(kDefaultSocket, places, variables, kRoot);
  CHECK_THAT(root, Contains("`systemctl start ringd`") &&
                       Contains("`ringctl run -n 2 -- python train.py` in place of torchrun"));
  const std::string user = Advice(kDefaultSocket, places, variables, kUser);
  CHECK_THAT(user, !Contains("systemctl") &&
                       Contains("`ringd --config /dev/null --socket " + own + "`") &&
                       Contains("RINGD_SOCKET=" + own) &&
                       Contains("`ringctl run -n 2 -- python train.py` in place of torchrun"));
  CHECK_THAT(user, !Contains("container"));
  for (const char* says : {"container", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}) {
    Variables contained = variables;
    contained[says] = "image.sif";
    CHECK_THAT(Advice(kDefaultSocket, places, contained, kUser),
               Contains("--bind /run/ringd") && Contains("`ringd --config /dev/null"));
  }
  // Another user's, after `su`.
  variables["XDG_RUNTIME_DIR"] = "/run/user/nobody-has-this";
  CHECK(Advice(kDefaultSocket, places, variables, kUser) == user);
  variables["XDG_RUNTIME_DIR"] = folder;
  variables["HOME"] = "/";
  CHECK_THAT(
      Advice(kDefaultSocket, places, variables, kUser),
      Contains("`ringd --config /dev/null --socket " + std::string(folder) + "/ringd.sock`"));
  CHECK_THAT(Advice(kDefaultSocket, places, {}, kUser), Contains("--socket FOLDER/ringd.sock"));
  ::rmdir(folder);
}

TEST_CASE("Advice without ringd: a socket that was named is where one belongs") {
  const std::string advice = Advice("/tmp/mine.sock", {0, 1, 0, 1}, {}, kRoot);
  CHECK_THAT(advice, Contains("`ringd --config /dev/null --socket /tmp/mine.sock`") &&
                         Contains("RINGD_SOCKET") && !Contains("systemctl") &&
                         !Contains("in place of"));
}

TEST_CASE("Advice without ringd: over several nodes ringctl run is no way out") {
  CHECK_THAT(Advice(kDefaultSocket, {0, 4, 0, 2}, kTorchrunVariables, kRoot),
             Contains("on every node") && !Contains("ringctl"));
}

}  // namespace
}  // namespace ringd::client
