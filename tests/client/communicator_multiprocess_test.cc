// ringd::Communicator of ringd.hpp, with a real ringd: three ranks, as threads of this process.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/ringd.hpp"
#include "tests/daemon/service/ringd_process.h"

namespace ringd {
namespace {

constexpr int kRanks = 3;

// Runs body(context, rank) on a thread for each rank; what they throw is returned.
template <typename Body>
std::vector<std::string> RunRanks(const std::string& socket, const std::string& job, Body body) {
  std::mutex mutex;
  std::vector<std::string> errors;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ringd_options options{};
        options.struct_size = sizeof(options);
        options.socket = socket.c_str();
        options.job_id = job.c_str();
        options.rank = rank;
        options.size = kRanks;
        options.local_rank = rank;
        options.local_size = kRanks;
        Context context(&options);
        body(context, rank);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        errors.emplace_back(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

float Sum(Context& context, ringd_communicator communicator, float value) {
  Tensor tensor = AllReduce<float>("value", {1});
  tensor.communicator = communicator;
  context.Submit(context.Register(tensor), std::span(&value, 1)).Wait();
  return value;
}

TEST_CASE("C++ layer: communicators of some ranks overlap, sum for themselves, and go") {
  RingdProcess ringd;
  ringd.Start();
  REQUIRE(ringd.WaitForNotification("READY=1"));
  std::atomic<int> right{0};
  const std::vector<std::string> errors =
      RunRanks(ringd.socket(), "overlap", [&](Context& context, int rank) {
        const std::vector<std::int32_t> first = {0, 1};
        const std::vector<std::int32_t> last = {2, 1};
        const float value = static_cast<float>(1 << rank);
        if (rank != 2) {
          const Communicator pair = context.CreateCommunicator("first", first);
          const ringd_communicator_place place = pair.place();
          right += place.size == 2 && place.rank == rank && place.node_count == 1 ? 1 : 0;
          right += Sum(context, pair.number(), value) == 3.0F ? 1 : 0;
          context.Barrier("both", pair.number());
        }
        if (rank != 0) {
          Communicator pair = context.CreateCommunicator("last", last, std::chrono::seconds(20));
          right += pair.place().rank == 2 - rank ? 1 : 0;
          right += Sum(context, pair.number(), value) == 6.0F ? 1 : 0;
          pair.Destroy();
          pair.Destroy();  // there is none any more
        }
        right += Sum(context, RINGD_ALL_RANKS, value) == 7.0F ? 1 : 0;
      });
  CHECK(errors.empty());
  CHECK(right == 4 + 4 + 3);
}

TEST_CASE("C++ layer: a communicator that is moved is given back once, and what is wrong thrown") {
  RingdProcess ringd;
  ringd.Start();
  REQUIRE(ringd.WaitForNotification("READY=1"));
  std::atomic<int> right{0};
  const std::vector<std::string> errors =
      RunRanks(ringd.socket(), "moved", [&](Context& context, int rank) {
        const std::vector<std::int32_t> alone = {rank};
        const std::string name = "alone." + std::to_string(rank);
        Communicator own = context.CreateCommunicator(name, alone);
        const ringd_communicator number = own.number();
        Communicator moved = std::move(own);
        right += Sum(context, moved.number(), 2.0F) == 2.0F ? 1 : 0;
        moved = Communicator();
        try {
          Sum(context, number, 1.0F);
        } catch (const Error& error) {
          right += error.code() == RINGD_NOT_FOUND ? 1 : 0;
        }
        const std::vector<std::int32_t> others = {(rank + 1) % kRanks};
        try {
          context.CreateCommunicator("others", others);
        } catch (const Error& error) {
          right += error.code() == RINGD_INVALID_ARGUMENT ? 1 : 0;
        }
      });
  CHECK(errors.empty());
  CHECK(right == 3 * kRanks);
}

TEST_CASE("C++ layer: operations on a communicator that matches by order have no names") {
  RingdProcess ringd;
  ringd.Start();
  REQUIRE(ringd.WaitForNotification("READY=1"));
  std::atomic<int> right{0};
  const std::vector<std::string> errors =
      RunRanks(ringd.socket(), "order", [&](Context& context, int rank) {
        const std::vector<std::int32_t> ranks = {0, 1, 2};
        Communicator ordered = context.CreateCommunicator("ordered", ranks, {}, RINGD_BY_ORDER);
        ringd_collective sum{};
        sum.kind = RINGD_ALLREDUCE;
        sum.data_type = RINGD_FLOAT32;
        sum.op = RINGD_SUM;
        sum.count = 1;
        float value = static_cast<float>(1 << rank);
        float again = value;
        Operation first = context.SubmitInOrder(ordered, sum, &value, &value);
        Operation second = context.SubmitInOrder(ordered, sum, &again, &again);
        second.Wait();
        first.Wait();
        right += value == 7.0F && again == 7.0F ? 1 : 0;
        // What differs is told to all; the next one goes on.
        sum.count = rank == 2 ? 1000 : 2;
        std::vector<float> many(1000, 1.0F);
        Operation different = context.SubmitInOrder(ordered, sum, many.data(), many.data());
        try {
          different.Wait();
        } catch (const Error& error) {
          right +=
              std::string(error.what()).find("rank 2 submitted allreduce sum float32 [1000]") !=
                      std::string::npos
                  ? 1
                  : 0;
        }
        // Scales count, also of what travels in its slot, and by them ranks differ, too.
        sum.prescale = 0.5;
        sum.postscale = rank == 0 ? 4.0 : 0.0;
        try {
          context.SubmitInOrder(ordered, sum, many.data(), many.data()).Wait();
        } catch (const Error& error) {
          const std::string told = error.what();
          right += told.find(
                       "rank 0 submitted allreduce sum float32 [2] prescale 0.5 postscale 4,"
                       " rank 1 submitted allreduce sum float32 [2] prescale 0.5 postscale 1") !=
                           std::string::npos
                       ? 1
                       : 0;
        }
        sum.postscale = 4.0;
        for (const std::uint64_t count : {1, 4, 5, 8, 3000}) {
          sum.count = count;
          std::vector<float> scaled(count, 1.0F);
          context.SubmitInOrder(ordered, sum, scaled.data(), scaled.data()).Wait();
          right += scaled == std::vector<float>(count, 6.0F) ? 1 : 0;
        }
        sum.prescale = sum.postscale = 0.0;
        sum.op = RINGD_AVERAGE;
        value = static_cast<float>(3 * rank);
        sum.count = 1;
        context.SubmitInOrder(ordered, sum, &value, &value).Wait();
        right += std::abs(value - 3.0F) < 1e-6F ? 1 : 0;
        sum.op = RINGD_SUM;
        sum.count = 1000;
        std::vector<float> ones(1000, 1.0F);
        context.SubmitInOrder(ordered, sum, ones.data(), ones.data()).Wait();
        right += ones == std::vector<float>(1000, 3.0F) ? 1 : 0;
        ordered.Destroy();
      });
  CHECK(errors.empty());
  CHECK(right == 10 * kRanks);
}

}  // namespace
}  // namespace ringd
