// Joins that come while an engine that has ended is buried.
#include <signal.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/daemon/supervisor/supervised_node.h"

namespace ringd {
namespace {

// Does something on the thread that logs the first line with these words, before it goes on.
class AtLine {
 public:
  AtLine(std::string words, std::function<void()> what) : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<Sink>(std::move(words), std::move(what))));
  }
  ~AtLine() { spdlog::set_default_logger(before_); }
  AtLine(const AtLine&) = delete;
  AtLine& operator=(const AtLine&) = delete;

 private:
  class Sink final : public spdlog::sinks::base_sink<std::mutex> {
   public:
    Sink(std::string words, std::function<void()> what)
        : words_(std::move(words)), what_(std::move(what)) {}

   private:
    void sink_it_(const spdlog::details::log_msg& line) override {
      if (std::string(line.payload.data(), line.payload.size()).find(words_) == std::string::npos) {
        return;
      }
      if (const auto what = std::exchange(what_, nullptr)) what();
    }
    void flush_() override {}

    const std::string words_;
    std::function<void()> what_;
  };

  const std::shared_ptr<spdlog::logger> before_;
};

// The one that has stood ready longest; 0: none does within 30 s.
pid_t FirstReady(Engines& engines) {
  for (int i = 0; i < 3000; ++i) {
    pid_t first = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid > 0 && engines.IsEngine(pid) && (first == 0 || pid < first)) first = pid;
    }
    if (first > 0) return first;
    ::poll(nullptr, 0, 10);
  }
  return 0;
}

TEST_CASE("Engines: a job that begins while one that stood ready is buried gets another one") {
  SupervisedNode node;
  AttachedTrainer trainer = node.Attach();
  std::promise<Asked<v1::JoinReply>> joining;
  const AtLine at("an engine that stood ready", [&] {
    joining.set_value(node.BeginJoin(trainer.token, SupervisedNode::RequestOf("job", 0, 1)));
  });
  const pid_t ready = FirstReady(*node.engines);
  REQUIRE(ready > 0);
  REQUIRE(::kill(ready, SIGKILL) == 0);
  auto began = joining.get_future();
  REQUIRE(began.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  CHECK(AnswerOf(began.get()).status.message() == "");
  trainer.lifeline.Reset();
  CHECK(trainer.Ended());
  CHECK(node.Serve(0));
}

TEST_CASE("Engines: ranks that rejoin while theirs is buried get another one, one generation on") {
  SupervisedNode node;
  AttachedTrainer first = node.Attach();
  AttachedTrainer second = node.Attach();
  const auto before = AnswerOf(node.BeginJoin(first.token, SupervisedNode::RequestOf("job", 0, 1)));
  REQUIRE(before.status.message() == "");
  std::promise<Asked<v1::JoinReply>> joining;
  const AtLine at("was killed by signal", [&] {
    joining.set_value(node.BeginJoin(second.token, SupervisedNode::RequestOf("job", 0, 1)));
  });
  REQUIRE(::kill(node.EngineOf("job"), SIGKILL) == 0);
  auto began = joining.get_future();
  REQUIRE(began.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  const auto after = AnswerOf(began.get());
  CHECK(after.status.message() == "");
  CHECK(after.reply.generation() == before.reply.generation() + 1);
  CHECK(first.Ended());
  CHECK_FALSE(second.place.expired());
  second.lifeline.Reset();
  CHECK(second.Ended());
  CHECK(node.Serve(0));
  CHECK(node.engines->sessions() == 0);
}

// While it traces a process, nobody else can reap that.
class Tracer {
 public:
  explicit Tracer(pid_t traced) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      const char traces = ::ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) == 0 ? 1 : 0;
      if (::write(ready[1], &traces, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char traces = 0;
    traces_ = ::read(ready[0], &traces, 1) == 1 && traces == 1;
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Tracer() { End(); }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  bool traces() const noexcept { return traces_; }
  void End() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  bool traces_ = false;
};

TEST_CASE("Engines: one that the kernel does not let go of holds up neither its job nor the stop") {
  SupervisedNode node;
  AttachedTrainer first = node.Attach();
  AttachedTrainer second = node.Attach();
  REQUIRE(AnswerOf(node.BeginJoin(first.token, SupervisedNode::RequestOf("job", 0, 1)))
              .status.message() == "");
  const pid_t engine = node.EngineOf("job");
  Tracer tracer(engine);
  REQUIRE(tracer.traces());
  node.engines->Serving().front()->End("was ended by this test");
  CHECK(first.Ended());
  // The same job, at once.
  CHECK(AnswerOf(node.BeginJoin(second.token, SupervisedNode::RequestOf("job", 0, 1)))
            .status.message() == "");
  CHECK(node.engines->IsEngine(engine));
  SECTION("it ends after all") {
    tracer.End();
    for (int i = 0; i < 3000 && node.engines->IsEngine(engine); ++i) ::poll(nullptr, 0, 10);
    CHECK_FALSE(node.engines->IsEngine(engine));
  }
  SECTION("it stays") {
    node.engines->Stop();
    CHECK(node.engines->IsEngine(engine));
  }
}

}  // namespace
}  // namespace ringd
