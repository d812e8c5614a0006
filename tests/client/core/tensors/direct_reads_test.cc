// Two members of a job in one process, which is as good as two: the kernel reads for who asks.
#include "client/core/tensors/direct_reads.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <vector>

namespace ringd::client {
namespace {

struct Segment {
  // Without tensors.
  explicit Segment(std::uint32_t members)
      : memory(JobSegmentView::TensorOffset(0, members) / sizeof(Line) + 1) {
    view = JobSegmentView(reinterpret_cast<std::byte*>(memory.data()), members);
  }
  Reach ReachOf(std::uint32_t member) const {
    return Reach::FromWord(view.Member(member).reach.load());
  }

  struct alignas(kCacheLineBytes) Line {
    std::array<std::byte, kCacheLineBytes> bytes;
  };
  std::vector<Line> memory;
  JobSegmentView view;
};

std::uint64_t AddressOf(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

std::span<std::byte> Bytes(std::array<char, 6>& text) {
  return std::as_writable_bytes(std::span(text));
}

TEST_CASE("DirectReads: once all have come and could read all, all may") {
  Segment segment(2);
  DirectReads first(segment.view, 0, DirectReading::kIfAllowed);
  CHECK_FALSE(first.Allowed());
  CHECK(segment.ReachOf(0).state == Reach::State::kOffered);
  DirectReads second(segment.view, 1, DirectReading::kIfAllowed);
  CHECK_FALSE(second.Allowed());  // The first has not said so yet.
  CHECK(first.Allowed());
  CHECK(second.Allowed());
  const char hello[6] = "hello";
  std::array<char, 6> read{};
  CHECK(first.Read(1, AddressOf(hello), Bytes(read)) == DirectReads::kOk);
  CHECK(std::strcmp(read.data(), "hello") == 0);
}

TEST_CASE("DirectReads: one that was told not to keeps all from it") {
  Segment segment(2);
  DirectReads first(segment.view, 0, DirectReading::kIfAllowed);
  DirectReads second(segment.view, 1, DirectReading::kOff);
  CHECK_FALSE(first.Allowed());
  CHECK_FALSE(second.Allowed());
  CHECK(segment.ReachOf(1).state == Reach::State::kOff);
  std::array<char, 6> read{};
  CHECK(first.Read(1, AddressOf("hello"), Bytes(read)) == EPERM);
}

TEST_CASE(
    "DirectReads: what is not the member that it says it is can't be read, and all hear why") {
  Segment segment(2);
  DirectReads first(segment.view, 0, DirectReading::kIfAllowed);
  DirectReads second(segment.view, 1, DirectReading::kIfAllowed);
  SharedMember& claimed = segment.view.Member(1);
  int error = 0;
  SECTION("another process has the pid, and something else lies there") {
    const std::uint64_t other = 0;
    claimed.token_address = AddressOf(&other);
    CHECK_FALSE(first.Allowed());
  }
  SECTION("nothing lies there") {
    claimed.token_address = 8;
    error = EFAULT;
    CHECK_FALSE(first.Allowed());
  }
  SECTION("there is no such process") {
    claimed.pid = INT32_MAX;
    error = ESRCH;
    CHECK_FALSE(first.Allowed());
  }
  CHECK(segment.ReachOf(0).state == Reach::State::kCannot);
  CHECK(segment.ReachOf(0).error == error);
  CHECK(segment.ReachOf(0).member == 1);
  CHECK_FALSE(second.Allowed());
}

TEST_CASE(
    "DirectReads: what a member has withdrawn comes to nothing, and what is not there to an "
    "error") {
  Segment segment(2);
  DirectReads first(segment.view, 0, DirectReading::kIfAllowed);
  DirectReads second(segment.view, 1, DirectReading::kIfAllowed);
  REQUIRE((first.Allowed() && second.Allowed()));
  std::array<char, 6> read{};
  CHECK(first.Read(1, 8, Bytes(read)) == EFAULT);
  second.Withdraw();
  CHECK(first.Read(1, AddressOf("hello"), Bytes(read)) == DirectReads::kWithdrawn);
}

TEST_CASE("DirectReads: a range that ends behind what is mapped is read in no part") {
  Segment segment(2);
  DirectReads first(segment.view, 0, DirectReading::kIfAllowed);
  DirectReads second(segment.view, 1, DirectReading::kIfAllowed);
  REQUIRE((first.Allowed() && second.Allowed()));
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const pages =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  REQUIRE(::munmap(static_cast<char*>(pages) + page, page) == 0);
  std::vector<std::byte> read(2 * page);
  CHECK(first.Read(1, AddressOf(pages), read) == EFAULT);
  CHECK(first.Read(1, AddressOf(pages), {read.data(), page}) == DirectReads::kOk);
  CHECK(DirectReads::IsReadable(pages, page));
  CHECK_FALSE(DirectReads::IsReadable(pages, page + 1));
  CHECK_FALSE(DirectReads::IsReadable(nullptr, page));
  ::munmap(pages, page);
}

}  // namespace
}  // namespace ringd::client
