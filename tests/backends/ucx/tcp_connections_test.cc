#include "backends/ucx/tcp_connections.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "tests/backends/tcp_pair.h"

namespace ringd {
namespace {

constexpr std::size_t kBytes = 20000;

void Write(int fd, std::size_t bytes = kBytes) {
  const std::vector<char> data(bytes, 'x');
  REQUIRE(::send(fd, data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
}

void Read(int fd, std::size_t bytes) {
  std::vector<char> data(bytes);
  REQUIRE(::recv(fd, data.data(), data.size(), MSG_WAITALL) == static_cast<ssize_t>(data.size()));
}

TEST_CASE("TcpConnections: lists what is connected") {
  const TcpPair pair;
  const UniqueFd alone(::socket(AF_INET, SOCK_STREAM, 0));
  const std::vector<int> found = TcpConnections();
  CHECK(std::count(found.begin(), found.end(), pair.one.get()) == 1);
  CHECK(std::count(found.begin(), found.end(), pair.other.get()) == 1);
  CHECK(std::count(found.begin(), found.end(), alone.get()) == 0);
}

TEST_CASE("WrittenConnection: finds the one that was written to") {
  const TcpPair pairs[3];
  const WrittenConnection look;
  Write(pairs[1].one.get());
  const TcpSocket found = look.Find(kBytes);
  REQUIRE(found.known());
  CHECK(found.fd == pairs[1].one.get());
  // What is less does not count.
  CHECK_FALSE(look.Find(kBytes + 1).known());
}

TEST_CASE("WrittenConnection: does not guess between two") {
  const TcpPair pairs[2];
  const WrittenConnection look;
  Write(pairs[0].one.get());
  Write(pairs[1].other.get());
  CHECK_FALSE(look.Find(kBytes).known());
  Write(pairs[1].other.get());
  CHECK(look.Find(2 * kBytes).fd == pairs[1].other.get());
}

TEST_CASE("ReadTcpCounters: counts what is written, and what has arrived") {
  const TcpPair pair;
  const WrittenConnection look;
  Write(pair.one.get());
  const TcpSocket socket = look.Find(kBytes);
  const auto before = ReadTcpCounters(socket);
  REQUIRE(before.has_value());
  Read(pair.other.get(), kBytes);
  Write(pair.one.get());
  Read(pair.other.get(), kBytes);
  const auto after = ReadTcpCounters(socket);
  REQUIRE(after.has_value());
  CHECK(after->written_bytes == before->written_bytes + kBytes);
  CHECK(after->acked_bytes >= before->acked_bytes);
  CHECK(after->acked_bytes <= after->written_bytes + 1);  // the handshake counts for one
  CHECK(after->least_round_trip <= after->round_trip);
}

TEST_CASE("ReadTcpCounters: a connection whose reader does not read is limited by its window") {
  const TcpPair pair;
  const WrittenConnection look;
  Write(pair.one.get());
  const TcpSocket socket = look.Find(kBytes);
  const std::vector<char> data(1 << 20, 'x');
  while (::send(pair.one.get(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
  }
  ::usleep(100'000);
  const auto counters = ReadTcpCounters(socket);
  REQUIRE(counters.has_value());
  CHECK(counters->busy >= std::chrono::milliseconds(50));
  CHECK(counters->window_limited >= std::chrono::milliseconds(50));
  CHECK_FALSE(counters->all_sent);
}

TEST_CASE("ReadTcpCounters: another connection with the same descriptor is another one") {
  TcpSocket gone;
  {
    const TcpPair pair;
    const WrittenConnection look;
    Write(pair.one.get());
    gone = look.Find(kBytes);
    REQUIRE(ReadTcpCounters(gone).has_value());
  }
  const TcpPair next;
  CHECK((next.one.get() == gone.fd || next.other.get() == gone.fd));
  CHECK_FALSE(ReadTcpCounters(gone).has_value());
  CHECK_FALSE(ReadTcpCounters({}).has_value());
}

}  // namespace
}  // namespace ringd
