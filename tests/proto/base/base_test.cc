#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/doorbell.h"
#include "proto/base/median.h"
#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

Clock::time_point Soon() { return Clock::now() + std::chrono::seconds(30); }

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char path[] = "/tmp/ringd-test-XXXXXX";
    path_ = ::mkdtemp(path);
  }
  ~TemporaryFolder() { ::rmdir(path_.c_str()); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

TEST_CASE("Memfd: nobody can shrink or grow a sealed one") {
  const auto fd = CreateSealedMemfd("test", 8192);
  REQUIRE(fd.ok());
  CHECK(CheckSealed(fd->get()).ok());
  CHECK(::ftruncate(fd->get(), 4096) != 0);
  CHECK(::ftruncate(fd->get(), 16384) != 0);
  struct stat info {};
  REQUIRE(::fstat(fd->get(), &info) == 0);
  CHECK(info.st_size == 8192);
}

TEST_CASE("Memfd: who gets the descriptor of published memory sees it, and can't write there") {
  auto memory = CreatePublishedMemfd("test", 4096);
  REQUIRE(memory.ok());
  memory->mapping.data()[7] = std::byte{1};
  const auto seen = MemoryMapping::MapReadOnly(memory->fd.get(), 4096);
  REQUIRE(seen.ok());
  CHECK(seen->data()[7] == std::byte{1});
  memory->mapping.data()[7] = std::byte{2};
  CHECK(seen->data()[7] == std::byte{2});
  CHECK_FALSE(MemoryMapping::MapSealed(memory->fd.get(), 4096).ok());
  CHECK(::ftruncate(memory->fd.get(), 8192) != 0);
  const UniqueFd open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK_FALSE(MemoryMapping::MapReadOnly(open.get(), 0).ok());
}

TEST_CASE("Memfd: one without seals is noticed") {
  const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(fd.valid());
  CHECK(absl::IsFailedPrecondition(CheckSealed(fd.get())));
}

TEST_CASE("MemoryMapping: two mappings of one descriptor show the same bytes") {
  const auto fd = CreateSealedMemfd("test", 4096);
  REQUIRE(fd.ok());
  auto one = MemoryMapping::Map(fd->get(), 4096);
  auto other = MemoryMapping::Map(fd->get(), 4096);
  REQUIRE(one.ok());
  REQUIRE(other.ok());
  one->data()[17] = std::byte{42};
  CHECK(other->data()[17] == std::byte{42});
  CHECK(absl::IsInvalidArgument(MemoryMapping::Map(fd->get(), 4097).status()));
}

TEST_CASE("UnixSocket: descriptors travel with bytes, and the kernel tells who sent them") {
  auto pair = UnixSocketPair();
  REQUIRE(pair.ok());
  const auto memory = CreateSealedMemfd("test", 4096);
  REQUIRE(memory.ok());
  const std::array<std::byte, 3> sent = {std::byte{1}, std::byte{2}, std::byte{3}};
  const std::array<int, 2> fds = {memory->get(), memory->get()};
  REQUIRE(SendWithFds(pair->first.get(), sent, fds, Soon()).ok());
  std::array<std::byte, 3> received{};
  const auto got = ReceiveWithFds(pair->second.get(), received, Soon());
  REQUIRE(got.ok());
  CHECK(received == sent);
  REQUIRE(got->size() == 2);
  CHECK((::fcntl((*got)[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
  const auto peer = GetPeerCredentials(pair->first.get());
  REQUIRE(peer.ok());
  CHECK(peer->pid == ::getpid());
  CHECK(peer->uid == ::getuid());
}

TEST_CASE("UnixSocket: receiving ends at the deadline, and at once when the peer goes") {
  auto pair = UnixSocketPair();
  REQUIRE(pair.ok());
  std::array<std::byte, 4> bytes{};
  const auto late =
      ReceiveWithFds(pair->first.get(), bytes, Clock::now() + std::chrono::milliseconds(20));
  CHECK(absl::IsDeadlineExceeded(late.status()));
  pair->second.Reset();
  CHECK(absl::IsUnavailable(ReceiveWithFds(pair->first.get(), bytes, Soon()).status()));
}

TEST_CASE("UnixSocket: a stale socket is replaced, one in use and other files are not") {
  const TemporaryFolder folder;
  const std::string path = folder.File("s");
  {
    const auto first = ListenUnix(path, 0600);
    REQUIRE(first.ok());
    CHECK(absl::IsAlreadyExists(ListenUnix(path, 0600).status()));
    CHECK(ConnectUnix(path, Soon()).ok());
  }
  CHECK(absl::IsUnavailable(ConnectUnix(path, Soon()).status()));
  CHECK(ListenUnix(path, 0600).ok());
  ::unlink(path.c_str());
  CHECK(absl::IsNotFound(ConnectUnix(path, Soon()).status()));
  const UniqueFd plain(::open(path.c_str(), O_CREAT | O_WRONLY, 0600));
  CHECK(absl::IsAlreadyExists(ListenUnix(path, 0600).status()));
  ::unlink(path.c_str());
  CHECK(absl::IsInvalidArgument(ListenUnix(std::string(200, 'x'), 0600).status()));
}

TEST_CASE("Doorbell: a sleeper is woken, and work published before it sleeps is not slept over") {
  Doorbell bell{};
  std::atomic<bool> work{false};
  std::thread sleeper([&] {
    while (!work.load()) bell.Wait(std::chrono::seconds(5), [&] { return work.load(); });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto before = Clock::now();
  work = true;
  bell.Ring();
  sleeper.join();
  CHECK(Clock::now() - before < std::chrono::seconds(4));
  CHECK(bell.sleepers.load() == 0);
  CHECK_FALSE(bell.Ring());  // Nobody sleeps: no system call.
}

TEST_CASE("MedianOf: the middle, of two the greater, whatever the order") {
  std::vector<int> odd = {9, 1, 5};
  CHECK(MedianOf(odd) == 5);
  std::vector<double> even = {4.0, 1.0, 3.0, 2.0};
  CHECK(MedianOf(even) == 3.0);
  std::vector<int> one = {7};
  CHECK(MedianOf(one) == 7);
}

}  // namespace
}  // namespace ringd
