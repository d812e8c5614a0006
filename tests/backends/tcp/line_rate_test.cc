#include "backends/tcp/line_rate.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd {
namespace {

constexpr std::uint64_t kMebibyte = 1 << 20;

TcpAccount Sent(std::uint64_t bytes, std::chrono::microseconds time) { return {time, bytes}; }

TEST_CASE("LineRate: 1 Gbit/s is slow, 10 Gbit/s are not, and what lies between changes nothing") {
  LineRate rate;
  CHECK_FALSE(rate.is_slow());
  rate.Note(Sent(4 * kMebibyte, std::chrono::microseconds(33'500)), 1);
  CHECK(rate.is_slow());
  rate.Note(Sent(4 * kMebibyte, std::chrono::microseconds(14'000)), 1);
  CHECK(rate.is_slow());
  rate.Note(Sent(4 * kMebibyte, std::chrono::microseconds(3'400)), 1);
  CHECK_FALSE(rate.is_slow());
  rate.Note(Sent(4 * kMebibyte, std::chrono::microseconds(14'000)), 1);
  CHECK_FALSE(rate.is_slow());
}

TEST_CASE("LineRate: connections that carry bulk at the same time are one line") {
  LineRate rate;
  // Four of them, each of which had something under way for all of 10 ms.
  rate.Note(Sent(4 * kMebibyte, std::chrono::microseconds(40'000)), 4);
  CHECK_FALSE(rate.is_slow());
  rate.Note(Sent(4 * kMebibyte, std::chrono::microseconds(40'000)), 1);
  CHECK(rate.is_slow());
}

TEST_CASE("LineRate: where the kernel says nothing, no line is slow") {
  LineRate rate;
  rate.Note(Sent(0, std::chrono::microseconds(0)), 1);
  CHECK_FALSE(rate.is_slow());
}

}  // namespace
}  // namespace ringd
