#include "backends/collectives/weighted_fair_queue.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

namespace ringd {
namespace {

struct Message {
  Message* next = nullptr;
  std::uint64_t order = 0;
  int flow = 0;
  std::size_t bytes = 0;
  int number = 0;

  std::size_t line_bytes() const noexcept { return bytes; }
};

// A queue whose messages live as long as the test.
class Line {
 public:
  using Queue = WeightedFairQueue<Message>;

  int AddFlow(std::uint32_t weight, std::uint64_t share = 0) {
    flows_.push_back(queue_.AddFlow({share, weight}));
    return static_cast<int>(flows_.size()) - 1;
  }
  void Push(int flow, std::size_t bytes, std::uint64_t order = 0) {
    messages_.push_back({nullptr, order, flow, bytes, pushed_++});
    queue_.Push(*flows_[static_cast<std::size_t>(flow)], messages_.back());
  }
  Message& Pop() { return queue_.Pop(); }
  // Sends for as long as `bytes` take, each flow in `sizes` always having messages of that size.
  std::map<int, std::size_t> SendBacklogged(const std::map<int, std::size_t>& sizes,
                                            std::size_t bytes) {
    for (const auto& [flow, size] : sizes) {
      for (int i = 0; i < 2; ++i) Push(flow, size);
    }
    std::map<int, std::size_t> sent;
    for (std::size_t total = 0; total < bytes;) {
      const Message& message = Pop();
      sent[message.flow] += message.bytes;
      total += message.bytes;
      Push(message.flow, message.bytes);
    }
    return sent;
  }
  Queue& queue() { return queue_; }
  Queue::Flow* flow(int number) { return flows_[static_cast<std::size_t>(number)]; }

 private:
  Queue queue_;
  std::deque<Queue::Flow*> flows_;
  std::deque<Message> messages_;
  int pushed_ = 0;
};

constexpr std::size_t kChunk = 128 * 1024;

bool Near(std::size_t value, double expected) {
  return static_cast<double>(value) > 0.99 * expected &&
         static_cast<double>(value) < 1.01 * expected;
}

TEST_CASE("flows that always want to send get bytes by their weights") {
  Line line;
  const int heavy = line.AddFlow(3);
  const int light = line.AddFlow(1);
  const auto sent = line.SendBacklogged({{heavy, kChunk}, {light, kChunk}}, 400 * kChunk);
  CHECK(Near(sent.at(heavy), 300.0 * kChunk));
  CHECK(Near(sent.at(light), 100.0 * kChunk));
}

TEST_CASE("bytes count and not messages") {
  Line line;
  const int large = line.AddFlow(1);
  const int small = line.AddFlow(1);
  const auto sent = line.SendBacklogged({{large, kChunk}, {small, 1000}}, 200 * kChunk);
  CHECK(Near(sent.at(large), 100.0 * kChunk));
  CHECK(Near(sent.at(small), 100.0 * kChunk));
}

TEST_CASE("weights from 1 to 100 are kept to beside each other") {
  Line line;
  const int heaviest = line.AddFlow(100);
  const int odd = line.AddFlow(7);
  const int lightest = line.AddFlow(1);
  const auto sent = line.SendBacklogged({{heaviest, kChunk}, {odd, kChunk / 3}, {lightest, kChunk}},
                                        108 * 300 * kChunk);
  CHECK(Near(sent.at(heaviest), 100.0 * 300 * kChunk));
  CHECK(Near(sent.at(odd), 7.0 * 300 * kChunk));
  CHECK(Near(sent.at(lightest), 1.0 * 300 * kChunk));
}

TEST_CASE("a flow alone sends in the order given") {
  Line line;
  const int only = line.AddFlow(5);
  line.AddFlow(1);
  for (int i = 0; i < 20; ++i) line.Push(only, static_cast<std::size_t>(i * 100));
  for (int i = 0; i < 20; ++i) CHECK(line.Pop().number == i);
  CHECK(line.queue().empty());
}

TEST_CASE("within a flow the lowest order goes first, and equal ones as they came") {
  Line line;
  const int only = line.AddFlow(1);
  std::map<std::uint64_t, int> expected;  // by order and number
  const std::uint64_t orders[] = {5, 5, 2, 9, 2, 1, 5, 9, 1, 7};
  int number = 0;
  for (const std::uint64_t order : orders) {
    line.Push(only, kChunk, order);
    expected[order * 100 + static_cast<std::uint64_t>(number)] = number;
    ++number;
  }
  for (const auto& [key, next] : expected) CHECK(line.Pop().number == next);
  CHECK(line.queue().empty());
}

TEST_CASE("a low order gives a flow no more of the line") {
  Line line;
  const int first = line.AddFlow(1);
  const int second = line.AddFlow(1);
  for (int i = 0; i < 100; ++i) {
    line.Push(first, kChunk, 9);
    line.Push(second, kChunk, 1);
  }
  int of_first = 0;
  for (int i = 0; i < 100; ++i) of_first += line.Pop().flow == first ? 1 : 0;
  CHECK(of_first == 50);
}

TEST_CASE("a newcomer waits for at most one message of each other flow") {
  const std::uint32_t weight = GENERATE(1u, 3u, 100u);
  Line line;
  const int huge = line.AddFlow(weight);
  const int other = line.AddFlow(weight);
  const int newcomer = line.AddFlow(1);
  // They have been at it for long, and have much waiting.
  line.SendBacklogged({{huge, kChunk}, {other, kChunk}}, 1000 * kChunk);
  for (int i = 0; i < 50; ++i) {
    line.Push(huge, kChunk);
    line.Push(other, kChunk);
  }
  line.Push(newcomer, 64);
  std::map<int, int> before;
  for (int flow; (flow = line.Pop().flow) != newcomer;) ++before[flow];
  CHECK(before[huge] <= 1);
  CHECK(before[other] <= 1);
}

TEST_CASE("whoever was silent has nothing saved up") {
  Line line;
  const int busy = line.AddFlow(1);
  const int sleeper = line.AddFlow(1);
  line.SendBacklogged({{busy, kChunk}}, 1000 * kChunk);
  const auto sent = line.SendBacklogged({{sleeper, kChunk}}, 100 * kChunk);
  CHECK(Near(sent.at(busy), 50.0 * kChunk));
}

TEST_CASE("whoever had the line alone owes nothing") {
  Line line;
  const int first = line.AddFlow(1);
  line.SendBacklogged({{first, kChunk}}, 1000 * kChunk);
  const int second = line.AddFlow(1);
  const auto sent = line.SendBacklogged({{second, kChunk}}, 100 * kChunk);
  CHECK(Near(sent.at(first), 50.0 * kChunk));
}

TEST_CASE("flows of one share have its weight together, in equal parts") {
  const std::uint32_t weight = GENERATE(1u, 3u);
  Line line;
  const int one = line.AddFlow(weight, 7);
  const int alone = line.AddFlow(1, 8);
  const int other = line.AddFlow(weight, 7);
  const int third = line.AddFlow(weight, 7);
  const std::size_t chunks = 300 * (weight + 1);
  const auto sent = line.SendBacklogged(
      {{one, kChunk}, {alone, kChunk}, {other, kChunk}, {third, kChunk / 2}}, chunks * kChunk);
  CHECK(Near(sent.at(alone), 300.0 * kChunk));
  for (const int flow : {one, other, third}) CHECK(Near(sent.at(flow), 100.0 * weight * kChunk));
}

TEST_CASE("what a flow does not want goes to the others of its share") {
  Line line;
  const int busy = line.AddFlow(1, 7);
  line.AddFlow(1, 7);
  const int other = line.AddFlow(1);
  const int one_more = line.AddFlow(1);
  const auto sent =
      line.SendBacklogged({{busy, kChunk}, {other, kChunk}, {one_more, kChunk}}, 300 * kChunk);
  for (const int flow : {busy, other, one_more}) CHECK(Near(sent.at(flow), 100.0 * kChunk));
}

TEST_CASE("a share keeps its weight while flows of it come, are set aside, and go") {
  Line line;
  const int stays = line.AddFlow(1, 7);
  const int goes = line.AddFlow(1, 7);
  const int other = line.AddFlow(1, 8);
  CHECK(Near(line.SendBacklogged({{stays, kChunk}, {goes, kChunk}, {other, kChunk}}, 400 * kChunk)
                 .at(other),
             200.0 * kChunk));
  line.queue().SetAside(*line.flow(goes));
  auto sent = line.SendBacklogged({}, 400 * kChunk);
  CHECK(Near(sent.at(stays), 200.0 * kChunk));
  CHECK(Near(sent.at(other), 200.0 * kChunk));
  line.queue().RemoveIf(
      *line.flow(goes), [](const Message&) { return true; }, [](const Message&) {});
  line.queue().RemoveFlow(line.flow(goes));
  const int comes = line.AddFlow(1, 7);
  sent = line.SendBacklogged({{comes, kChunk}}, 400 * kChunk);
  CHECK(Near(sent.at(stays), 100.0 * kChunk));
  CHECK(Near(sent.at(comes), 100.0 * kChunk));
  CHECK(Near(sent.at(other), 200.0 * kChunk));
}

TEST_CASE("a share whose flows were silent by turns has nothing saved up, and owes nothing") {
  Line line;
  const int one = line.AddFlow(1, 7);
  const int other = line.AddFlow(1, 7);
  const int beside = line.AddFlow(1, 8);
  std::size_t of_beside = 0;
  for (int i = 0; i < 400; ++i) {
    // Those of the share never have something at the same time, but one always has.
    line.Push(i % 2 == 0 ? one : other, kChunk);
    line.Push(beside, kChunk);
    for (int popped = 0; popped < 2; ++popped) of_beside += line.Pop().flow == beside ? 1 : 0;
  }
  CHECK(of_beside == 400);
  CHECK(line.queue().empty());
}

TEST_CASE("messages can be taken back, and flows go") {
  Line line;
  const int stays = line.AddFlow(1);
  const int goes = line.AddFlow(1);
  for (int i = 0; i < 4; ++i) {
    line.Push(stays, 100);
    line.Push(goes, 100);
  }
  int taken = 0;
  line.queue().RemoveIf([&](const Message& message) { return message.flow == goes; },
                        [&](const Message&) { ++taken; });
  CHECK(taken == 4);
  line.queue().RemoveFlow(line.flow(goes));
  CHECK(line.queue().flow_count() == 1);
  // The last one is taken from the middle of the rest: what is pushed later comes behind it.
  line.queue().RemoveIf([](const Message& message) { return message.number == 6; },
                        [](const Message&) {});
  line.Push(stays, 100);
  for (const int number : {0, 2, 4, 8}) CHECK(line.Pop().number == number);
  CHECK(line.queue().empty());
}

TEST_CASE("a flow that is set aside has no turn, and keeps what it has") {
  Line line;
  const int goes = line.AddFlow(1);
  const int waits = line.AddFlow(1);
  line.Push(waits, kChunk);
  line.queue().SetAside(*line.flow(waits));
  CHECK(line.queue().empty());
  line.Push(waits, kChunk);
  for (int i = 0; i < 10; ++i) line.Push(goes, kChunk);
  for (int i = 0; i < 10; ++i) CHECK(line.Pop().flow == goes);
  CHECK(line.queue().empty());
  CHECK_FALSE(line.flow(waits)->empty());
  line.queue().Readmit(*line.flow(waits));
  CHECK(line.Pop().number == 0);
  CHECK(line.Pop().number == 1);
  CHECK(line.queue().empty());
}

TEST_CASE("whoever was set aside has nothing saved up") {
  Line line;
  const int busy = line.AddFlow(1);
  const int aside = line.AddFlow(1);
  for (int i = 0; i < 200; ++i) line.Push(aside, kChunk);
  line.queue().SetAside(*line.flow(aside));
  line.SendBacklogged({{busy, kChunk}}, 1000 * kChunk);
  line.queue().Readmit(*line.flow(aside));
  const auto sent = line.SendBacklogged({}, 100 * kChunk);
  CHECK(Near(sent.at(busy), 50.0 * kChunk));
}

TEST_CASE("messages can be taken back from a flow that is set aside") {
  Line line;
  const int aside = line.AddFlow(1);
  line.queue().SetAside(*line.flow(aside));
  line.Push(aside, kChunk);
  line.Push(aside, kChunk);
  line.queue().RemoveIf(
      *line.flow(aside), [](const Message& message) { return message.number == 0; },
      [](const Message&) {});
  line.queue().Readmit(*line.flow(aside));
  CHECK(line.Pop().number == 1);
  CHECK(line.queue().empty());
}

}  // namespace
}  // namespace ringd
