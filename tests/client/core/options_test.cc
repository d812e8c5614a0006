#include "client/core/options.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <string>

namespace ringd::client {
namespace {

using Catch::Matchers::Contains;

absl::StatusOr<Options> Resolve(const ringd_options* given,
                                const std::map<std::string, std::string>& environment) {
  return ResolveOptions(given, [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

const std::map<std::string, std::string> kTwoNodes = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};

std::map<std::string, std::string> TwoNodesAnd(const std::string& name, const std::string& value) {
  auto environment = kTwoNodes;
  environment[name] = value;
  return environment;
}

// A braced list of one pair of texts would be read as two iterators.
std::map<std::string, std::string> Only(const std::string& name, const std::string& value) {
  return {std::pair<const std::string, std::string>(name, value)};
}

TEST_CASE("Options: nothing given and nothing set is one rank alone at the default socket") {
  const auto options = Resolve(nullptr, {});
  REQUIRE(options.ok());
  CHECK(options->socket == "/run/ringd/ringd.sock");
  CHECK(options->join.job_id == "default");
  CHECK(options->join.places == Places{0, 1, 0, 1});
  CHECK(options->join.rendezvous.empty());
  CHECK(options->join.secret.empty());
  CHECK(options->join.start_timeout_ms == 0);
  CHECK_FALSE(options->spin.has_value());
}

TEST_CASE("Options: only who names neither a ringd nor other ranks may be alone") {
  CHECK(Resolve(nullptr, {})->may_be_alone);
  CHECK(Resolve(nullptr, Only("WORLD_SIZE", "2"))->may_be_alone);    // left behind by some tool
  CHECK(Resolve(nullptr, Only("SLURM_PROCID", "0"))->may_be_alone);  // a batch script
  CHECK_FALSE(Resolve(nullptr, Only("RINGD_SOCKET", "/tmp/s"))->may_be_alone);
  CHECK_FALSE(Resolve(nullptr, TwoNodesAnd("MASTER_ADDR", "a"))->may_be_alone);
  // One rank, but of a launcher, whose user wants a job.
  CHECK_FALSE(
      Resolve(nullptr,
              {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}})
          ->may_be_alone);
  ringd_options given{};
  given.struct_size = sizeof(given);
  given.size = 2;
  given.local_size = 2;
  CHECK_FALSE(Resolve(&given, {})->may_be_alone);
  given.size = given.local_size = 1;
  CHECK(Resolve(&given, {})->may_be_alone);
  given.socket = "/tmp/s";
  CHECK_FALSE(Resolve(&given, {})->may_be_alone);
}

TEST_CASE("Options: the caller comes before the variables, the variables before the launcher") {
  std::map<std::string, std::string> environment = {{"RINGD_SOCKET", "/tmp/env.sock"},
                                                    {"RINGD_JOB_ID", "env-job"},
                                                    {"TORCHELASTIC_RUN_ID", "torch-job"},
                                                    {"RINGD_RENDEZVOUS", "env:1"},
                                                    {"RINGD_JOB_SECRET", "env-secret"},
                                                    {"RINGD_START_TIMEOUT", "2.5"},
                                                    {"RINGD_OPERATION_TIMEOUT", "0.0001"},
                                                    {"RINGD_FUSION", "64MiB"},
                                                    {"RINGD_WEIGHT", "3"},
                                                    {"RINGD_SPIN_US", "7.5"},
                                                    {"RINGD_BACKGROUND", "0"},
                                                    {"RINGD_DIRECT_READ", "allow"},
                                                    {"RINGD_HOST_PATH", "1"}};
  const auto from_environment = Resolve(nullptr, environment);
  REQUIRE(from_environment.ok());
  CHECK(from_environment->socket == "/tmp/env.sock");
  CHECK(from_environment->join.job_id == "env-job");
  CHECK(from_environment->join.rendezvous == "env:1");
  CHECK(from_environment->join.secret == "env-secret");
  CHECK(from_environment->join.start_timeout_ms == 2500);
  // Not 0, which would mean none.
  CHECK(from_environment->join.operation_timeout_ms == 1);
  CHECK(from_environment->join.fusion == "64MiB");
  CHECK(from_environment->join.weight == 3);
  CHECK(from_environment->spin == std::chrono::nanoseconds(7500));
  CHECK(from_environment->direct_reading == DirectReading::kAllowToAll);
  CHECK(Resolve(nullptr, {})->direct_reading == DirectReading::kIfAllowed);
  CHECK(Resolve(nullptr, {{"RINGD_DIRECT_READ", "0"}})->direct_reading == DirectReading::kOff);
  CHECK(from_environment->background == BackgroundUse::kNever);
  CHECK(from_environment->wants_host_path);
  CHECK_FALSE(Resolve(nullptr, {{"RINGD_HOST_PATH", "0"}})->wants_host_path);
  CHECK_FALSE(Resolve(nullptr, {})->wants_host_path);
  CHECK_FALSE(Resolve(nullptr, {{"RINGD_HOST_PATH", "yes"}}).ok());

  ringd_options given{};
  given.struct_size = sizeof(given);
  given.socket = "/tmp/given.sock";
  given.job_id = "given-job";
  given.rank = 1;
  given.size = 2;
  given.local_rank = 0;
  given.local_size = 1;
  given.rendezvous = "given:2";
  given.secret = GENERATE(as<const char*>{}, "given-secret", "");
  given.start_timeout_ms = 1;
  given.operation_timeout_ms = 2;
  given.fusion = "off";
  given.weight = 4;
  environment["RANK"] = "nonsense";
  const auto from_caller = Resolve(&given, environment);
  REQUIRE(from_caller.ok());
  CHECK(from_caller->socket == "/tmp/given.sock");
  CHECK(from_caller->join.job_id == "given-job");
  CHECK(from_caller->join.places == Places{1, 2, 0, 1});
  CHECK(from_caller->join.rendezvous == "given:2");
  CHECK(from_caller->join.secret == given.secret);
  CHECK(from_caller->join.start_timeout_ms == 1);
  CHECK(from_caller->join.operation_timeout_ms == 2);
  CHECK(from_caller->join.fusion == "off");
  CHECK(from_caller->join.weight == 4);
}

TEST_CASE("Options: a program built before there were weights has the variable's, or the default") {
  ringd_options given{};
  given.struct_size = offsetof(ringd_options, weight);
  given.rank = -1;
  given.fusion = "pinned";
  given.weight = 7;  // whatever lies behind its structure
  const auto by_default = Resolve(&given, {});
  REQUIRE(by_default.ok());
  CHECK(by_default->join.fusion == "pinned");
  CHECK(by_default->join.weight == 0);
  CHECK(Resolve(&given, {{"RINGD_WEIGHT", "2"}})->join.weight == 2);
  given.struct_size -= 1;
  CHECK(absl::IsInvalidArgument(Resolve(&given, {}).status()));
}

TEST_CASE("Options: a program built before there were interrupts is not asked for one") {
  ringd_options given{};
  given.struct_size = offsetof(ringd_options, is_interrupted);
  given.is_interrupted = [](void*) { return std::int32_t{1}; };  // what lies behind its structure
  REQUIRE(Resolve(&given, {}).ok());
  CHECK(Resolve(&given, {})->is_interrupted == nullptr);
  given.struct_size = sizeof(given);
  const absl::StatusOr<client::Options> resolved = Resolve(&given, {});
  REQUIRE(resolved.ok());
  REQUIRE(resolved->is_interrupted != nullptr);
  CHECK(resolved->is_interrupted());
}

TEST_CASE("Options: a weight that makes no sense is refused with what is allowed") {
  ringd_options given{};
  given.struct_size = sizeof(given);
  given.weight = 101;
  CHECK_THAT(std::string(Resolve(&given, {}).status().message()),
             Contains("the weight that is given is 101") && Contains("1 to 100"));
  for (const char* value : {"0", "101", "-1", "2.5", "heavy"}) {
    CHECK_THAT(std::string(Resolve(nullptr, {{"RINGD_WEIGHT", value}}).status().message()),
               Contains(std::string("RINGD_WEIGHT='") + value) && Contains("1 to 100"));
  }
}

TEST_CASE("Options: ranks whose job another one could have the id of are warned") {
  const auto warning = [](const std::map<std::string, std::string>& environment) {
    const auto options = Resolve(nullptr, environment);
    REQUIRE(options.ok());
    return options->start_warning;
  };
  const std::map<std::string, std::string> by_hand = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
  CHECK_THAT(warning(by_hand), Contains("job 'default', of 2 ranks") && Contains("RINGD_JOB_ID"));
  auto named = by_hand;
  named["RINGD_JOB_ID"] = "mine";
  CHECK(warning(named).empty());
  auto met = by_hand;
  met["MASTER_ADDR"] = "a";
  met["MASTER_PORT"] = "1";
  CHECK(warning(met).empty());
  CHECK(warning({}).empty());  // one rank alone
}

TEST_CASE("Options: the rendezvous is rank 0's host with ringd's port") {
  CHECK(Resolve(nullptr, TwoNodesAnd("MASTER_ADDR", "node-a"))->join.rendezvous == "node-a:7117");
  CHECK(Resolve(nullptr, TwoNodesAnd("MASTER_ADDR", "fd00::1"))->join.rendezvous ==
        "[fd00::1]:7117");
  auto environment = TwoNodesAnd("MASTER_ADDR", "node-a");
  environment["RINGD_PEER_PORT"] = "9000";
  CHECK(Resolve(nullptr, environment)->join.rendezvous == "node-a:9000");
}

TEST_CASE("Options: a job over several nodes that can't find rank 0 is told what to set") {
  const auto options = Resolve(nullptr, kTwoNodes);
  CHECK(absl::IsInvalidArgument(options.status()));
  CHECK_THAT(std::string(options.status().message()),
             Contains("MASTER_ADDR") && Contains("RINGD_RENDEZVOUS"));
}

TEST_CASE("Options: a job on one node needs no rendezvous") {
  auto environment = TwoNodesAnd("MASTER_ADDR", "127.0.0.1");
  environment["LOCAL_WORLD_SIZE"] = "4";
  CHECK(Resolve(nullptr, environment)->join.rendezvous.empty());
}

TEST_CASE("Options: bad values are errors that name their variable") {
  const auto error = [](const char* name, const char* value) {
    const auto options = Resolve(nullptr, {{name, value}});
    REQUIRE(absl::IsInvalidArgument(options.status()));
    return std::string(options.status().message());
  };
  CHECK_THAT(error("RINGD_START_TIMEOUT", "soon"), Contains("RINGD_START_TIMEOUT='soon'"));
  CHECK_THAT(error("RINGD_START_TIMEOUT", "-1"), Contains("a time such as"));
  CHECK_THAT(error("RINGD_START_TIMEOUT", "5 days"), Contains("a time such as"));
  CHECK_THAT(error("RINGD_START_TIMEOUT", "1e9"), Contains("a time such as"));
  CHECK_THAT(error("RINGD_OPERATION_TIMEOUT", "nan"), Contains("RINGD_OPERATION_TIMEOUT"));
  CHECK_THAT(error("RINGD_SPIN_US", "x"), Contains("RINGD_SPIN_US"));
  CHECK_THAT(error("RINGD_BACKGROUND", "yes"),
             Contains("RINGD_BACKGROUND") && Contains("0, 1 or auto"));
  CHECK_THAT(error("RINGD_DIRECT_READ", "2"), Contains("RINGD_DIRECT_READ") && Contains("allow"));
}

TEST_CASE("Options: times may carry ringd's units") {
  const auto start = [](const char* value) {
    return Resolve(nullptr, {{"RINGD_START_TIMEOUT", value}})->join.start_timeout_ms;
  };
  CHECK(start("30") == 30'000);
  CHECK(start("30s") == 30'000);
  CHECK(start("1.5 s") == 1500);
  CHECK(start("250ms") == 250);
  CHECK(start("2min") == 120'000);
  CHECK(start("1h") == 3'600'000);
}

TEST_CASE("Options: warnings go to the caller's function with its data") {
  ringd_options given{};
  given.struct_size = sizeof(given);
  given.rank = -1;
  std::string heard;
  given.user_data = &heard;
  given.on_warning = [](void* user_data, const char* text) {
    *static_cast<std::string*>(user_data) = text;
  };
  const auto options = Resolve(&given, {});
  REQUIRE(options.ok());
  options->on_warning("a stall");
  CHECK(heard == "a stall");
}

}  // namespace
}  // namespace ringd::client
