#include "daemon/peers/name_resolver.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>
#include <vector>

namespace ringd {
namespace {

constexpr uid_t kAlice = 1000;
constexpr std::chrono::seconds kPatience{30};

TEST_CASE("NameResolver: numeric hosts are answered before Resolve returns") {
  NameResolver resolver;
  std::vector<std::string> addresses;
  for (const char* host : {"192.0.2.7", "2001:db8::7"}) {
    resolver.Resolve(kAlice, {host, 7117}, Clock::now() + kPatience, [&](auto answer) {
      REQUIRE(answer.ok());
      addresses.insert(addresses.end(), answer->begin(), answer->end());
    });
  }
  CHECK(addresses == std::vector<std::string>{"192.0.2.7:7117", "[2001:db8::7]:7117"});
}

TEST_CASE("NameResolver: after Stop nobody is called, for a numeric host neither") {
  NameResolver resolver;
  resolver.Stop();
  int calls = 0;
  for (const char* host : {"192.0.2.7", "localhost"}) {
    resolver.Resolve(kAlice, {host, 7117}, Clock::now() + kPatience, [&](const auto&) { ++calls; });
  }
  resolver.Stop();
  CHECK(calls == 0);
}

TEST_CASE("NameResolver: Stop waits for a callback under way, of a numeric host too") {
  NameResolver resolver;
  std::promise<void> called;
  std::promise<void> go_on;
  std::future<void> answering = std::async(std::launch::async, [&] {
    resolver.Resolve(kAlice, {"192.0.2.7", 7117}, Clock::now() + kPatience, [&](const auto&) {
      called.set_value();
      go_on.get_future().wait_for(kPatience);
    });
  });
  REQUIRE(called.get_future().wait_for(kPatience) == std::future_status::ready);
  std::future<void> stopping = std::async(std::launch::async, [&] { resolver.Stop(); });
  CHECK(stopping.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  go_on.set_value();
  CHECK(stopping.wait_for(kPatience) == std::future_status::ready);
}

TEST_CASE("NameResolver: a name that nobody knows is told when the deadline has passed") {
  // Too long for any name server to be asked.
  const std::string name = std::string(64, 'x') + ".invalid";
  NameResolver resolver;
  std::promise<absl::Status> answer;
  resolver.Resolve(kAlice, {name, 7117}, Clock::now() + std::chrono::milliseconds(10),
                   [&](const auto& addresses) { answer.set_value(addresses.status()); });
  std::future<absl::Status> answered = answer.get_future();
  REQUIRE(answered.wait_for(kPatience) == std::future_status::ready);
  const absl::Status status = answered.get();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(status.message().find(name) != std::string::npos);
}

}  // namespace
}  // namespace ringd
