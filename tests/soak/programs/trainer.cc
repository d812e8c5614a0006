// One rank of a job of the soak: all-reduces of several sizes, step after step, each sum compared
// element by element. One of them is on a communicator beside that of all ranks, which is destroyed
// and made anew every few steps, and matches by name and by order in turns.
//
// Its place comes from the environment, as every launcher gives it. Prints an event per line:
//
//   {"event": "joined", "at": SECONDS, "pid": PID}            it has its place
//   {"event": "working", "at": SECONDS}                       the first step is done
//   {"event": "warning" | "error" | "wrong sum", "at": SECONDS, "text": "..."}
//   {"event": "done", "at": SECONDS, "steps": N}
//   S STEP BEGIN_NS END_NS WAITED_NS                          a step: when it began and ended, and
//                                                             how long this thread waited for a
//                                                             processor meanwhile
//   C STEP BEGIN_NS END_NS WAITED_NS                          the same of a change of the
//                                                             communicator before that step
//
// Times are of the clock that all processes of a machine share. Exit codes: 0 well, 3 an error of
// ringd's, 4 a wrong sum.
//
//   SOAK_STOP     path: once that file exists the job ends, on all ranks after the same step
//   SOAK_STEPS    at most so many steps; 0, the default: no limit
//   SOAK_PERIOD   milliseconds from the begin of one step to that of the next; default 30
//   SOAK_EXIT     "rank RANK after STEPS with CODE": that rank ends so, without a word to ringd
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/ringd.h"
#include "tests/soak/programs/thread_wait.h"

namespace ringd {
namespace {

using soak::NowNanos;
using soak::SleepUntil;
using soak::WaitedNanos;

constexpr int kFailed = 3;
constexpr int kWrongSum = 4;
constexpr std::int64_t kStepsOfBeside = 20;

bool MatchesByOrder(std::int64_t step) { return step / kStepsOfBeside % 2 == 1; }

std::string Quoted(const char* text) {
  std::string quoted = "\"";
  for (const char* at = text; *at != '\0'; ++at) {
    if (*at == '"' || *at == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(*at) < ' ' ? ' ' : *at;
  }
  return quoted + '"';
}

// `details` begins with a comma, or is empty.
void Say(const char* event, const std::string& details = "") {
  std::printf("{\"event\": \"%s\", \"at\": %.6f%s}\n", event,
              static_cast<double>(NowNanos()) * 1e-9, details.c_str());
  std::fflush(stdout);
}

[[noreturn]] void End(int code) {
  std::fflush(stdout);
  ::_exit(code);
}

void Require(ringd_status status) {
  if (status == RINGD_OK) return;
  Say("error", std::string(", \"kind\": \"") + ringd_status_name(status) +
                   "\", \"text\": " + Quoted(ringd_last_error()));
  End(kFailed);
}

std::int64_t Setting(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

// A tensor that is summed in each step. Every element's value follows from rank, step and place,
// and so does the sum, which float holds exactly.
class Layer {
 public:
  Layer(ringd_context* context, const ringd_place& place, int number, std::int64_t elements,
        bool in_arena, ringd_communicator communicator = RINGD_ALL_RANKS)
      : place_(place), number_(number), elements_(elements) {
    Describe(context, communicator);
    const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
    if (in_arena) {
      void* address = nullptr;
      Require(ringd_arena_alloc(context, bytes, &address));
      values_ = static_cast<float*>(address);
    } else {
      own_.resize(static_cast<std::size_t>(elements));
      values_ = own_.data();
    }
  }

  // On that communicator, which matches by name, from now on.
  void Describe(ringd_context* context, ringd_communicator communicator) {
    const std::string name = "layer" + std::to_string(number_);
    ringd_tensor tensor{};
    tensor.struct_size = sizeof(tensor);
    tensor.name = name.c_str();
    tensor.data_type = RINGD_FLOAT32;
    tensor.dimensions = 1;
    tensor.shape = &elements_;
    tensor.communicator = communicator;
    Require(ringd_register(context, &tensor, 1, &registration_));
  }

  void Fill(std::int64_t step) {
    for (std::int64_t i = 0; i < elements_; ++i) {
      values_[i] = static_cast<float>((place_.rank + 1) * Term(step, i));
    }
  }
  ringd_operation Submit(ringd_context* context) {
    ringd_operation operation = 0;
    Require(ringd_submit(context, registration_, values_, values_, &operation));
    return operation;
  }
  // On that communicator, in the way in which it matches at that step.
  ringd_operation SubmitOn(ringd_context* context, ringd_communicator communicator,
                           std::int64_t step) {
    if (!MatchesByOrder(step)) return Submit(context);
    ringd_collective collective{};
    collective.struct_size = sizeof(collective);
    collective.data_type = RINGD_FLOAT32;
    collective.count = static_cast<std::uint64_t>(elements_);
    ringd_operation operation = 0;
    Require(
        ringd_submit_in_order(context, communicator, &collective, values_, values_, &operation));
    return operation;
  }
  float* values() { return values_; }
  ringd_registration registration() const { return registration_; }

  // Ends the process if an element is wrong. The first `skipped` are somebody else's.
  void Check(std::int64_t step, std::int64_t skipped = 0) const {
    const std::int64_t ranks = std::int64_t{place_.size} * (place_.size + 1) / 2;
    for (std::int64_t i = skipped; i < elements_; ++i) {
      const auto expected = static_cast<float>(ranks * Term(step, i));
      if (values_[i] == expected) continue;
      Say("wrong sum", ", \"text\": \"layer" + std::to_string(number_) + "[" + std::to_string(i) +
                           "] of step " + std::to_string(step) + " is " +
                           std::to_string(values_[i]) + " instead of " + std::to_string(expected) +
                           "\"");
      End(kWrongSum);
    }
  }

 private:
  std::int64_t Term(std::int64_t step, std::int64_t i) const {
    return (step * 7 + number_ * 13 + i) % 1021;
  }

  const ringd_place place_;
  const int number_;
  const std::int64_t elements_;
  ringd_registration registration_ = 0;
  std::vector<float> own_;
  float* values_ = nullptr;
};

// A communicator of all ranks, in reverse order.
ringd_communicator MakeBeside(ringd_context* context, const ringd_place& place, std::int64_t step) {
  std::vector<std::int32_t> ranks;
  for (std::int32_t rank = place.size; rank-- > 0;) ranks.push_back(rank);
  const std::string name = "beside " + std::to_string(step);
  ringd_communicator_options options{};
  options.struct_size = sizeof(options);
  options.name = name.c_str();
  options.ranks = ranks.data();
  options.count = ranks.size();
  options.matching = MatchesByOrder(step) ? RINGD_BY_ORDER : RINGD_BY_NAME;
  ringd_communicator made = 0;
  Require(ringd_communicator_create(context, &options, &made));
  return made;
}

// So that what it needs is there, as its connections: the first operation waits for that.
void SumOnce(ringd_context* context, Layer& layer, ringd_communicator communicator,
             std::int64_t step) {
  layer.Fill(step);
  Require(ringd_wait(context, layer.SubmitOn(context, communicator, step), -1));
  layer.Check(step);
}

// From its making to its end, a line.
class Measured {
 public:
  Measured(char kind, std::int64_t step) : kind_(kind), step_(step) {}
  std::int64_t begin() const { return begin_; }
  void End() const {
    const std::int64_t end = NowNanos();
    std::printf("%c %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", kind_, step_, begin_, end,
                WaitedNanos() - waited_);
    std::fflush(stdout);
  }

 private:
  const char kind_;
  const std::int64_t step_;
  const std::int64_t waited_ = WaitedNanos();
  const std::int64_t begin_ = NowNanos();
};

struct Death {
  int rank = -1;  // nobody's
  std::int64_t after = 0;
  int code = 0;
};

Death DeathFromEnvironment() {
  Death death;
  const char* text = std::getenv("SOAK_EXIT");
  if (text != nullptr && std::sscanf(text, "rank %d after %" SCNd64 " with %d", &death.rank,
                                     &death.after, &death.code) != 3) {
    std::fprintf(stderr, "SOAK_EXIT is \"rank RANK after STEPS with CODE\"\n");
    End(2);
  }
  return death;
}

void Train(ringd_context* context) {
  ringd_place place{};
  place.struct_size = sizeof(place);
  Require(ringd_get_place(context, &place));
  Say("joined", ", \"pid\": " + std::to_string(::getpid()));
  const std::int64_t period_ns = Setting("SOAK_PERIOD", 30) * 1'000'000;
  const std::int64_t most_steps = Setting("SOAK_STEPS", 0);
  const char* const stop = std::getenv("SOAK_STOP");
  const Death death = DeathFromEnvironment();

  // In the arena or not, and of every size at which ringd does something else. The last is what
  // ranks wait for.
  ringd_communicator beside = MakeBeside(context, place, 0);
  std::array<Layer, 5> layers{
      Layer(context, place, 0, 200'000, true), Layer(context, place, 1, 20'000, false),
      Layer(context, place, 2, 1'000, true), Layer(context, place, 3, 30'000, true, beside),
      Layer(context, place, 4, 4, false)};
  Layer& of_beside = layers[3];
  std::array<ringd_operation, layers.size() - 1> operations{};
  Layer& loss = layers.back();
  SumOnce(context, of_beside, beside, 0);
  std::int64_t step = 0;
  for (bool last = false; !last; ++step) {
    if (place.rank == death.rank && step == death.after) End(death.code);
    for (Layer& layer : layers) layer.Fill(step);
    // Who wants to stop is summed, too.
    const bool enough = step + 1 == most_steps || (stop != nullptr && ::access(stop, F_OK) == 0);
    loss.values()[0] = enough ? 1.0F : 0.0F;

    const Measured measured('S', step);
    for (std::size_t i = 0; i < operations.size(); ++i) {
      operations[i] = &layers[i] == &of_beside ? of_beside.SubmitOn(context, beside, step)
                                               : layers[i].Submit(context);
    }
    Require(ringd_wait_all(context, operations.data(), operations.size(), -1));
    ringd_operation operation = 0;
    Require(ringd_submit_awaited(context, loss.registration(), loss.values(), loss.values(),
                                 &operation));
    Require(ringd_wait(context, operation, -1));
    measured.End();

    last = loss.values()[0] > 0.0F;
    for (Layer& layer : layers) layer.Check(step, &layer == &loss ? 1 : 0);
    if (step == 0) Say("working");
    if (step % kStepsOfBeside == kStepsOfBeside - 1 && !last) {
      const Measured change('C', step + 1);
      Require(ringd_communicator_destroy(context, beside));
      beside = MakeBeside(context, place, step + 1);
      if (!MatchesByOrder(step + 1)) of_beside.Describe(context, beside);
      SumOnce(context, of_beside, beside, step + 1);
      change.End();
    }
    if (!last) SleepUntil(measured.begin() + period_ns);
  }
  Say("done", ", \"steps\": " + std::to_string(step));
}

}  // namespace
}  // namespace ringd

int main() {
  ringd_options options{};
  options.struct_size = sizeof(options);
  options.rank = -1;
  options.on_warning = [](void*, const char* text) {
    ringd::Say("warning", ", \"text\": " + ringd::Quoted(text));
  };
  ringd_context* context = nullptr;
  ringd::Require(ringd_open(&options, &context));
  ringd::Train(context);
  ringd_close(context);
  return 0;
}
