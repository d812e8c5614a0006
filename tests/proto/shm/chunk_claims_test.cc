// The word in which chunks are claimed: single steps, and many threads at once.
#include "proto/shm/chunk_claims.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

namespace ringd {
namespace {

struct Tensor {
  Tensor() { std::memset(static_cast<void*>(&state), 0, sizeof(state)); }
  SharedTensor state;
};

TEST_CASE("ChunkClaims: each chunk is claimed once, the preferred ones first") {
  Tensor tensor;
  ChunkClaims claims(tensor.state, 0, 5);
  CHECK(claims.Claim(3) == 3);
  CHECK(claims.Claim(3) == 4);
  CHECK(claims.Claim(3) == 0);
  CHECK(claims.Claim(0) == 1);
  CHECK(claims.Claim(0) == 2);
  CHECK(claims.Claim(0) == kNoChunk);
}

TEST_CASE("ChunkClaims: only some may be claimed, too, from the preferred one on") {
  Tensor tensor;
  ChunkClaims claims(tensor.state, 0, 8);
  CHECK(claims.Claim(4, 0b0011'0010) == 4);
  CHECK(claims.Claim(4, 0b0011'0010) == 5);
  CHECK(claims.Claim(4, 0b0011'0010) == 1);
  CHECK(claims.Claim(4, 0b0011'0010) == kNoChunk);
  CHECK(claims.Claim(4) == 6);
}

TEST_CASE("ChunkClaims: the last chunk done finishes the occurrence and frees the word") {
  Tensor tensor;
  ChunkClaims claims(tensor.state, 7, 2);
  REQUIRE(claims.Claim(0) == 0);
  REQUIRE(claims.Claim(0) == 1);
  CHECK_FALSE(claims.Done(1));
  CHECK_FALSE(claims.Finished());
  CHECK(claims.Done(0));
  CHECK(claims.Finished());
  CHECK(tensor.state.work.load() == 0);
  // Also long ago: what is finished stays so.
  CHECK(ChunkClaims(tensor.state, 3, 2).Finished());
  CHECK_FALSE(ChunkClaims(tensor.state, 8, 2).Finished());
}

TEST_CASE("ChunkClaims: a claim for an occurrence that has finished is taken back") {
  Tensor tensor;
  for (const std::uint64_t late : {std::uint64_t{0}, std::uint64_t{4}}) {
    ChunkClaims next(tensor.state, 5, 1);
    if (late == 4) {
      REQUIRE(next.Claim(0) == 0);
      CHECK(next.Done(0));
    }
    tensor.state.finished.store(std::max<std::uint64_t>(5, tensor.state.finished.load()));
    CHECK(ChunkClaims(tensor.state, late, 3).Claim(2) == kNoChunk);
    CHECK(tensor.state.work.load() == 0);
  }
}

TEST_CASE("ChunkClaims: another occurrence at work is waited for") {
  Tensor tensor;
  ChunkClaims first(tensor.state, 0, 2);
  REQUIRE(first.Claim(0) == 0);
  ChunkClaims second(tensor.state, 1, 2);
  CHECK(second.Claim(0) == kNoChunk);
}

TEST_CASE("ChunkClaims: a tag that comes again after 255 occurrences is no old one") {
  Tensor tensor;
  for (std::uint64_t occurrence = 0; occurrence < 600; ++occurrence) {
    // Every other one is carried out without the word, as tensors that fit into their slots are.
    if (occurrence % 2 == 1) continue;
    ChunkClaims claims(tensor.state, occurrence, 1);
    REQUIRE(claims.Claim(0) == 0);
    REQUIRE(claims.Done(0));
  }
}

TEST_CASE("ChunkClaims: stopping leaves nothing to claim and says when all is quiet") {
  Tensor tensor;
  ChunkClaims worker(tensor.state, 0, 4);
  REQUIRE(worker.Claim(0) == 0);
  ChunkClaims stopper(tensor.state, 0, 4);
  CHECK_FALSE(stopper.Stop());
  CHECK(worker.Claim(0) == kNoChunk);
  CHECK_FALSE(worker.Done(0));
  CHECK(stopper.Stop());
}

TEST_CASE("ChunkClaims: several stop one occurrence, at once and one after the other") {
  Tensor tensor;
  // What an earlier occurrence has left there is not this one's.
  tensor.state.stopped.store(~std::uint64_t{0});
  ChunkClaims worker(tensor.state, 0, 4);
  REQUIRE(worker.Claim(0) == 0);
  CHECK_FALSE(ChunkClaims(tensor.state, 0, 4).Stop());
  CHECK_FALSE(ChunkClaims(tensor.state, 0, 4).Stop());
  CHECK_FALSE(worker.Done(0));
  CHECK(ChunkClaims(tensor.state, 0, 4).Stop());
  CHECK(ChunkClaims(tensor.state, 0, 4).Stop());

  Tensor raced;
  std::atomic<int> quiet{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&raced, &quiet] {
      while (!ChunkClaims(raced.state, 7, kMaxChunks).Stop()) std::this_thread::yield();
      ++quiet;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(quiet == 4);
}

TEST_CASE("ChunkClaims: stopping waits for the word of the occurrence before") {
  Tensor tensor;
  ChunkClaims before(tensor.state, 0, 1);
  REQUIRE(before.Claim(0) == 0);
  ChunkClaims stopper(tensor.state, 1, 2);
  CHECK_FALSE(stopper.Stop());
  REQUIRE(before.Done(0));
  CHECK(stopper.Stop());
  ChunkClaims late(tensor.state, 1, 2);
  CHECK(late.Claim(0) == kNoChunk);
  CHECK_FALSE(late.Finished());
}

TEST_CASE("ChunkClaims: threads that race do every chunk of every occurrence exactly once") {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kOccurrences = 3000;
  constexpr std::uint32_t kChunks = 7;
  Tensor tensor;
  std::vector<std::array<std::atomic<int>, kChunks>> done(kOccurrences);
  std::atomic<int> finishers{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t k = 0; k < kOccurrences; ++k) {
        ChunkClaims claims(tensor.state, k, kChunks);
        while (!claims.Finished()) {
          const int chunk = claims.Claim(static_cast<std::uint32_t>(t) * kChunks / kThreads);
          if (chunk == kNoChunk) {
            std::this_thread::yield();
            continue;
          }
          ++done[k][static_cast<std::size_t>(chunk)];
          if (claims.Done(chunk)) ++finishers;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int wrong = 0;
  for (const auto& occurrence : done) {
    for (const auto& count : occurrence) wrong += count != 1 ? 1 : 0;
  }
  CHECK(wrong == 0);
  CHECK(finishers == kOccurrences);
}

}  // namespace
}  // namespace ringd
