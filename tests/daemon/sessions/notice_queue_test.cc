#include "daemon/sessions/notice_queue.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/memfd.h"
#include "proto/base/unix_socket.h"
#include "tests/count_descriptors.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

// A lifeline with little room, and the trainer's end, which reads when it is told to.
struct Lifeline {
  Lifeline() {
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    ours = std::move(ends->first);
    theirs = std::move(ends->second);
    const int small = 4096;
    REQUIRE(::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
  }

  void Say(NoticeKind kind, const std::string& text, int fd = -1) {
    queue.Send(ours.get(), kind, std::as_bytes(std::span(text.data(), text.size())), fd, now);
  }
  // Warnings of 1 KiB until the socket takes no more. How many of them wait then or were sent.
  int Fill() {
    int count = 0;
    while (!queue.stirs())
      Say(NoticeKind::kWarning, std::to_string(count++) + std::string(1024, 'w'));
    return count;
  }
  // Takes what there is, as a trainer would, with descriptors.
  void Read() {
    char bytes[8192];
    for (;;) {
      iovec part{bytes, sizeof(bytes)};
      alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      const ssize_t count = ::recvmsg(theirs.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
      if (count <= 0) return;
      received.append(bytes, static_cast<std::size_t>(count));
      const cmsghdr* rights = CMSG_FIRSTHDR(&message);
      if (rights == nullptr) continue;
      for (std::size_t i = 0; i < (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(fd));
        fds.emplace_back(fd);
      }
    }
  }
  void ReadAll() {
    for (int i = 0; i < 100; ++i) {
      Read();
      queue.Flush(ours.get(), now);
    }
    Read();
  }
  // The frames that came, whole ones and in order.
  std::vector<std::pair<NoticeKind, std::string>> Frames() const {
    std::vector<std::pair<NoticeKind, std::string>> frames;
    std::size_t at = 0;
    while (at < received.size()) {
      NoticeHeader header{};
      REQUIRE(received.size() - at >= sizeof(header));
      std::memcpy(&header, received.data() + at, sizeof(header));
      at += sizeof(header);
      REQUIRE(received.size() - at >= header.text_length);
      frames.emplace_back(static_cast<NoticeKind>(header.kind),
                          received.substr(at, header.text_length));
      at += header.text_length;
    }
    return frames;
  }

  UniqueFd ours;
  UniqueFd theirs;
  NoticeQueue queue;
  Clock::time_point now = Clock::now();
  std::string received;
  std::vector<UniqueFd> fds;
};

TEST_CASE(
    "NoticeQueue: what finds no room waits, and comes whole and in order when there is some") {
  Lifeline line;
  const int count = line.Fill();
  const UniqueFd memory(::dup(0));
  line.Say(NoticeKind::kJobSegment, "segment", memory.get());
  line.Say(NoticeKind::kFailure, "rank 1 was killed");
  line.ReadAll();
  CHECK_FALSE(line.queue.stirs());
  const auto frames = line.Frames();
  REQUIRE(frames.size() == static_cast<std::size_t>(count) + 2);
  for (int i = 0; i < count; ++i)
    CHECK_THAT(frames[static_cast<std::size_t>(i)].second,
               Catch::Matchers::StartsWith(std::to_string(i) + "w"));
  CHECK(frames[frames.size() - 2] == std::pair(NoticeKind::kJobSegment, std::string("segment")));
  CHECK(frames.back() == std::pair(NoticeKind::kFailure, std::string("rank 1 was killed")));
  CHECK(line.fds.size() == 1);
}

TEST_CASE("NoticeQueue: memory that had to wait is given up when it has been sent") {
  Lifeline line;
  line.Fill();
  const std::size_t before = CountDescriptors();
  {
    absl::StatusOr<UniqueFd> memory = CreateSealedMemfd("test", 4096);
    REQUIRE(memory.ok());
    for (int i = 0; i < 50; ++i) line.Say(NoticeKind::kJobSegment, "segment", memory->get());
    CHECK(CountDescriptors() == before + 51);
  }
  // The other end of a socket could hold up who closes it.
  line.Say(NoticeKind::kRankExchangeConnection, "connection", line.theirs.get());
  line.ReadAll();
  CHECK(line.fds.size() == 51);
  line.fds.clear();
  CHECK(CountDescriptors() == before + 1);
}

TEST_CASE("NoticeQueue: who never reads costs little, and loses warnings first") {
  Lifeline line;
  line.Fill();
  for (int i = 0; i < 10'000; ++i) line.Say(NoticeKind::kWarning, std::string(1024, 'w'));
  CHECK(line.queue.error().ok());
  line.now += 100 * NoticeQueue::kPatience;
  line.queue.Flush(line.ours.get(), line.now);
  CHECK(line.queue.error().ok());  // It may be stopped, by a debugger.
  for (int i = 0; i < 100; ++i) line.Say(NoticeKind::kFailure, std::string(1024, 'f'));
  CHECK_THAT(std::string(line.queue.error().message()), Contains("does not read"));
}

TEST_CASE("NoticeQueue: a descriptor that can't be passed in time is an error") {
  Lifeline line;
  line.Fill();
  line.Say(NoticeKind::kJobSegment, "segment", 0);
  line.now += NoticeQueue::kPatience;
  line.queue.Flush(line.ours.get(), line.now);
  CHECK(line.queue.error().ok());
  line.now += std::chrono::milliseconds(1);
  line.queue.Flush(line.ours.get(), line.now);
  CHECK_THAT(std::string(line.queue.error().message()),
             Contains("memory of its job") && Contains("does not read"));
  CHECK(line.queue.stirs());
}

TEST_CASE("NoticeQueue: the last word goes before what waits") {
  Lifeline line;
  line.Fill();
  line.Say(NoticeKind::kJobSegment, "segment", 0);
  line.Read();
  line.queue.SendLast(line.ours.get(), NoticeKind::kSessionEnded, "the reason");
  line.Read();
  CHECK(line.Frames().back() == std::pair(NoticeKind::kSessionEnded, std::string("the reason")));
  CHECK(line.fds.empty());
}

TEST_CASE("NoticeQueue: a trainer that has gone is no error") {
  Lifeline line;
  line.theirs.Reset();
  line.Say(NoticeKind::kFailure, "nobody hears it");
  CHECK_FALSE(line.queue.stirs());
}

// In a process of a user whom the kernel limits: how many descriptors of his may be under way.
int PassTooMany() {
  constexpr uid_t kNobody = 65534;
  constexpr int kMost = 32;
  rlimit few{kMost, kMost};
  Lifeline line;
  const int much = 200'000;
  ::setsockopt(line.ours.get(), SOL_SOCKET, SO_SNDBUF, &much, sizeof(much));
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0 || ::setuid(kNobody) != 0) return 1;
  int said = 0;
  for (; said < 2 * kMost && !line.queue.stirs(); ++said) {
    line.Say(NoticeKind::kMemberArena, "arena", 0);
  }
  if (said == 2 * kMost) return 2;
  line.now += 2 * NoticeQueue::kPatience;
  line.queue.Flush(line.ours.get(), line.now);
  if (line.queue.error().message().find("passing a descriptor") == std::string::npos) return 3;
  // Text goes through all the same.
  line.queue.SendLast(line.ours.get(), NoticeKind::kSessionEnded, "why");
  line.Read();
  return line.Frames().back().second == "why" ? 0 : 4;
}

TEST_CASE("NoticeQueue: too many descriptors under way is told, and doesn't hang") {
  if (::geteuid() != 0) return;  // only root can become a user of whom nothing else is under way
  const pid_t child = ::fork();
  if (child == 0) ::_exit(PassTooMany());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace ringd
