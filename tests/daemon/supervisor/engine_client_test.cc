// What an engine that takes nothing may cost, and what its answers may.
#include "daemon/supervisor/engine_client.h"

#include <sys/eventfd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/channel/engine_status.h"
#include "daemon/supervisor/engine_call.h"
#include "proto/rpc/admin.pb.h"
#include "tests/daemon/engine_process/joined_engine.h"

namespace ringd {
namespace {

constexpr uid_t kUser = 1001;
constexpr std::size_t kMebibyte = std::size_t{1} << 20;

class NoOwner final : public EngineOwner {
 public:
  void OnSessionEnded(EngineClient&, const std::string&, bool) override {}
  void OnGeneration(EngineClient&, std::uint32_t) override {}
  void OnJobEnded(EngineClient&, const v1::EngineJobEnded&) override {}
  void OnKeep(EngineClient&, v1::EngineKeep) override {}
  void OnIdle(EngineClient&, std::uint64_t) override {}
  void OnEnding(EngineClient&) override {}
};

bool Within(const std::function<bool()>& is_so) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(60);
  while (!is_so()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

using Outcome = std::future<absl::Status>;

bool IsThere(const Outcome& outcome) {
  return outcome.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Engines whose ends of the channels nobody reads.
struct DeafEngines {
  ~DeafEngines() {
    for (const auto& engine : all) {
      if (engine->process() == nullptr) continue;
      engine->process()->End();
      CHECK(Within([&] { return engine->process()->Reap(); }));
    }
    for (const auto& engine : all) engine->Bury(absl::UnavailableError("over"));
    loop.reset();
    calls.Stop();
  }

  // `script`: what a shell does in the engine's place; empty: there is none.
  std::shared_ptr<EngineClient> Add(uid_t user, const std::string& script = "") {
    auto engine = *EngineClient::Create(all.size() + 1, {loop.get(), &calls, &isolated, &owner});
    EngineClient::Place place;
    place.slot = *roster->Add(1, user);
    place.account = *accounts.Of(user);
    place.network = node.network->AddEngine(user, "job", [](auto&&, auto&&, auto&&) {});
    v1::EngineStart start;
    start.set_uid(user);
    start.set_job_id("job");
    const absl::Status begun = engine->Begin(std::move(start), std::move(place), "node-a");
    REQUIRE(begun.ok());
    if (!script.empty()) {
      REQUIRE(engine->Spawn(*EngineProgram::At("/bin/sh"), {"-c", script}).ok());
    }
    all.push_back(engine);
    return engine;
  }
  static Outcome Call(EngineClient& engine, std::size_t bytes) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    Outcome outcome = promise->get_future();
    EngineClient::Order order;
    order.kind = v1::ENGINE_CALL_LIST_JOBS;
    order.caller = Caller{kUser};
    order.request = std::string(bytes, 'r');
    engine.Call(
        std::move(order), std::chrono::minutes(10),
        [promise](const absl::Status& status, const EngineReply&) { promise->set_value(status); });
    return outcome;
  }

  JoinedNode node{"node-a"};
  IsolatedExecutor isolated;
  NoOwner owner;
  CallThread calls;
  UserAccounts accounts;
  std::unique_ptr<LineRoster> roster = *LineRoster::Create();
  std::unique_ptr<ChannelLoop> loop = *ChannelLoop::Start("channel-test", &isolated);
  std::vector<std::shared_ptr<EngineClient>> all;
};

TEST_CASE("EngineClient: calls that a user's engines do not take are so long together") {
  DeafEngines engines;
  // The longest that there is, and most of what a user may have waiting.
  std::vector<Outcome> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(DeafEngines::Call(*engines.Add(kUser), 60 * kMebibyte));
  }
  Outcome refused = DeafEngines::Call(*engines.Add(kUser), 60 * kMebibyte);
  REQUIRE(refused.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  const absl::Status status = refused.get();
  CHECK(absl::IsResourceExhausted(status));
  CHECK(status.message() == "engines of this user have not taken 256 MiB of calls");
  const Outcome of_other = DeafEngines::Call(*engines.Add(kUser + 1), 60 * kMebibyte);
  Outcome behind = DeafEngines::Call(*engines.Add(kUser), 60 * kMebibyte);
  REQUIRE(behind.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  CHECK_FALSE(IsThere(of_other));
  for (const Outcome& one : waiting) CHECK_FALSE(IsThere(one));
}

TEST_CASE("EngineClient: a long answer is read when its user has room, and has that until used") {
  char folder[] = "/tmp/ringd-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string file = std::string(folder) + "/answer";
  v1::FromEngine word;
  word.mutable_answer()->set_number(1);
  word.mutable_answer()->set_reply(std::string(2 * kMebibyte, 'a'));
  const std::string payload = word.SerializeAsString();
  const std::uint32_t header[2] = {static_cast<std::uint32_t>(payload.size()), 0};
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(header), sizeof(header))
      .write(payload.data(), static_cast<std::streamsize>(payload.size()));
  std::mutex mutex;
  std::optional<EngineReply> answered;
  {
    DeafEngines engines;
    const auto neighbour = engines.Add(kUser);
    const std::string script = "cat " + file + " >&3; exec sleep 60";
    CountedPlaces& room = neighbour->user_places()->frame_bytes;
    CountedPlaces::Place taken = room.Take(UserPlaces::kMostFrameBytes - kMebibyte);
    const auto call = [&](EngineClient& engine, const Answer<EngineReply>& answer) {
      engine.Call({v1::ENGINE_CALL_LIST_JOBS, {kUser}, "", "", ""}, std::chrono::minutes(10),
                  answer);
    };
    const auto engine = engines.Add(kUser, script);
    call(*engine, [&](const absl::Status&, EngineReply reply) {
      const std::lock_guard lock(mutex);
      answered = std::move(reply);
    });
    std::promise<void> of_other;
    call(*engines.Add(kUser + 1, script),
         [&](const absl::Status&, const EngineReply&) { of_other.set_value(); });
    REQUIRE(of_other.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    REQUIRE(Within([&] { return engine->life().is_unread; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto is_answered = [&] {
      const std::lock_guard lock(mutex);
      return answered.has_value();
    };
    CHECK_FALSE(is_answered());
    taken = nullptr;
    REQUIRE(Within(is_answered));
    CHECK(answered->bytes.size() == 2 * kMebibyte);
    CHECK(room.Take(UserPlaces::kMostFrameBytes) == nullptr);
    answered.reset();
    CHECK(Within([&] { return room.Take(UserPlaces::kMostFrameBytes) != nullptr; }));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("EngineClient: an engine that takes no events is ended, later than a sound one can ask") {
  DeafEngines engines;
  const auto engine = engines.Add(kUser);
  v1::EngineNetworkEvent event;
  v1::EngineWireEvent& wire = *event.mutable_wire();
  wire.set_wire_id(UINT64_MAX);
  wire.set_opening(UINT64_MAX);
  WriteStatus(absl::ResourceExhaustedError(std::string(100, 'w')), wire.mutable_status());
  std::size_t sent = 0;
  for (; sent < 1'000'000 && engine->why_ended().empty(); ++sent) {
    engine->SendNetworkEvent(event, {}, nullptr);
  }
  CHECK(engine->why_ended() == "asks for more and does not take what it was told");
  CHECK(sent < 50'000);
  CHECK(sent > EngineNetwork::kMostDials + EngineNetwork::kMostWireDials +
                   EngineNetwork::kMostWires + EngineNetwork::kMostExpectations);
}

TEST_CASE("EngineClient: few descriptors are in the kernel that an engine does not take") {
  DeafEngines engines;
  const auto engine = engines.Add(kUser);
  CountedPlaces places(1000);
  for (int i = 0; i < 1000; ++i) {
    std::vector<UniqueFd> fds;
    fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
    engine->SendNetworkEvent({}, std::move(fds), places.Take());
  }
  // Places are free when the descriptors have been sent.
  std::size_t in_kernel = 0;
  std::vector<CountedPlaces::Place> taken;
  while (auto place = places.Take()) {
    taken.push_back(std::move(place));
    ++in_kernel;
  }
  CHECK(in_kernel > 0);
  // Those of as many engines as a node may have are fewer than descriptors (LimitNOFILE).
  CHECK(in_kernel * kMostEngines < 50'000);
}

TEST_CASE("EngineClient: a session has its place as long as its descriptors are here") {
  constexpr std::uint32_t kSessions = 5;
  // The engine takes nothing, and says that all sessions have ended, whenever it is told to.
  const std::string folder = std::getenv("TEST_TMPDIR");
  std::string frames;
  for (std::uint32_t id = 1; id <= kSessions; ++id) {
    v1::FromEngine word;
    word.mutable_session_ended()->set_id(id);
    const std::string payload = word.SerializeAsString();
    const std::uint32_t header[] = {static_cast<std::uint32_t>(payload.size()), 0};
    frames.append(reinterpret_cast<const char*>(header), sizeof(header)).append(payload);
  }
  std::ofstream(folder + "/frames") << frames;
  DeafEngines engines;
  const auto engine = engines.Add(
      kUser, "cd " + folder + "; until test -e go; do sleep 0.01; done; cat frames >&3; " +
                 "exec sleep 600");
  CHECK(engine->IsUsed());  // it has had none yet
  // The kernel takes no more of what is to be sent.
  for (int i = 0; i < 1000; ++i) {
    std::vector<UniqueFd> fds;
    fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
    engine->SendNetworkEvent({}, std::move(fds), nullptr);
  }
  CountedPlaces places(kSessions);
  for (std::uint32_t id = 1; id <= kSessions; ++id) {
    auto session = std::make_unique<SessionResources>();
    session->id = SessionId(id);
    session->admission = places.Take();
    for (UniqueFd* fd :
         {&session->lifeline, &session->event_fd, &session->segment_fd, &session->arena_fd}) {
      fd->Reset(::eventfd(0, EFD_CLOEXEC));
    }
    REQUIRE(engine->GiveSession(session).ok());
  }
  CHECK(engine->sessions() == kSessions);
  std::ofstream(folder + "/go") << "";
  REQUIRE(Within([&] { return engine->sessions() == 0; }));
  CHECK_FALSE(engine->IsUsed());
  CHECK(places.Take() == nullptr);
}

TEST_CASE("ParsedAnswer: a reply of more parts than anybody reads is none") {
  absl::Status heard;
  v1::JobsReply reply;
  const Answer<EngineReply> answer =
      ParsedAnswer<v1::JobsReply>([&](const absl::Status& status, v1::JobsReply parsed) {
        heard = status;
        reply = std::move(parsed);
      });
  v1::JobsReply many;
  for (int i = 0; i < 100'000; ++i) many.add_jobs()->set_job_id("job");
  answer(absl::OkStatus(), {many.SerializeAsString(), nullptr});
  CHECK(heard.ok());
  CHECK(reply.jobs_size() == 100'000);
  // Two bytes each, and more than a hundred in memory.
  std::string empty_jobs;
  for (std::size_t i = 0; i <= kMostReplyParts; ++i) empty_jobs += std::string("\x12\x00", 2);
  answer(absl::OkStatus(), {empty_jobs, nullptr});
  CHECK(absl::IsInternal(heard));
  CHECK(reply.jobs_size() == 0);
}

}  // namespace
}  // namespace ringd
