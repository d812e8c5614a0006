#include "daemon/jobs/communicator/fifo_queue.h"

#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <random>

namespace ringd {
namespace {

TEST_CASE("FifoQueue: gives back in order what was put in, as std::deque does") {
  std::mt19937 random(1);
  FifoQueue<int> queue;
  std::deque<int> model;
  for (int i = 0; i < 20'000; ++i) {
    // Phases of growing and of shrinking, so that it wraps around at many lengths.
    if (random() % 100 < ((i / 500) % 2 == 0 ? 60U : 40U)) {
      queue.push(i);
      model.push_back(i);
    } else if (!model.empty()) {
      queue.pop();
      model.pop_front();
    }
    REQUIRE(queue.size() == model.size());
    REQUIRE(queue.empty() == model.empty());
    if (!model.empty()) REQUIRE(queue.front() == model.front());
  }
}

TEST_CASE("FifoQueue: holds what can only be moved") {
  FifoQueue<std::unique_ptr<int>> queue;
  for (int i = 0; i < 5; ++i) queue.push(std::make_unique<int>(i));
  for (int i = 0; i < 5; ++i) {
    CHECK(*queue.front() == i);
    queue.pop();
  }
  CHECK(queue.empty());
}

}  // namespace
}  // namespace ringd
