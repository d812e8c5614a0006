#include <catch2/catch.hpp>
#include <filesystem>

#include "daemon/channel/engine_settings.h"
#include "daemon/supervisor/engine_trial.h"
#include "daemon/version.h"

namespace ringd {
namespace {

v1::EngineStart StartOf(const std::string& backend) {
  Config config;
  config.backend = backend;
  v1::EngineStart start;
  start.set_version(kRingdVersion);
  WriteSettings(config, start.mutable_settings());
  return start;
}

EngineProgram Program() {
  return *EngineProgram::At(std::filesystem::absolute("daemon/ringd-engine"));
}

TEST_CASE("TryEngine: says which transport an engine has") {
  CHECK(*TryEngine(Program(), {}, StartOf("none")) == "none");
  v1::EngineStart start = StartOf("tcp");
  CHECK(*TryEngine(Program(), {}, start) == "none");
  start.set_wire_address("127.0.0.1:7117");
  CHECK(*TryEngine(Program(), {}, start) == "tcp");
}

TEST_CASE("TryEngine: names what is wrong") {
  v1::EngineStart other = StartOf("none");
  other.set_version("0.0.0");
  const std::string said(TryEngine(Program(), {}, other).status().message());
  CHECK(said.find("and ringd is 0.0.0") != std::string::npos);
  CHECK(TryEngine(*EngineProgram::At("/bin/false"), {}, StartOf("none")).status().message() ==
        "the engine, /bin/false, can't be used: it exited with code 1");
}

}  // namespace
}  // namespace ringd
