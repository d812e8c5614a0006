// libFuzzer target: both sides of the door's handshake, against bytes of somebody who has no key.
//
// The first byte says which side is tried, and how many bytes come at a time. Whatever comes:
// nobody is let in without the key, neither side takes or sends more than its messages have, and it
// never goes on after its end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "proto/door/door_handshake.h"

namespace ringd {
namespace {

constexpr std::size_t kAnswererTakes = kDoorHelloBytes + kDoorProofBytes;
constexpr std::size_t kDiallerTakes = kDoorChallengeBytes + kDoorVerdictBytes;

void Require(bool holds) {
  if (!holds) std::abort();
}

// How many bytes the side has taken.
template <typename Side, typename Ask>
std::size_t Feed(Side& side, std::span<const std::uint8_t> bytes, std::size_t at_most, Ask ask) {
  std::size_t taken = 0;
  std::size_t sent = 0;
  while (!bytes.empty() && !side.room().empty()) {
    const std::span<std::byte> room = side.room();
    const std::size_t count = std::min({room.size(), bytes.size(), at_most});
    std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), count, room.begin());
    side.Received(count);
    bytes = bytes.subspan(count);
    taken += count;
    ask();
    sent += side.outgoing().size();
    side.Sent(side.outgoing().size());
  }
  Require(sent <= kDoorHelloBytes + kDoorChallengeBytes + kDoorVerdictBytes);
  return taken;
}

void TryAnswerer(std::span<const std::uint8_t> bytes, std::size_t at_most) {
  const std::vector<DoorKey> keys = {KeyForControl(JobKey("cluster", "job", "", 1000)),
                                     KeyForControl(JobKey("", "job", "secret", 0))};
  DoorAnswerer answerer(kDoorHasClusterKey, "node-a");
  const std::size_t taken = Feed(answerer, bytes, at_most, [&] {
    if (answerer.state() == DoorState::kAsked) answerer.Decide(keys, DoorVerdict::kWrongKey);
  });
  Require(taken <= kAnswererTakes);
  Require(answerer.state() != DoorState::kWelcome);
}

void TryDialler(std::span<const std::uint8_t> bytes, std::size_t at_most) {
  DoorDialler dialler(
      KeyForControl(JobKey("cluster", "job", "", 1000)),
      {DoorPurpose::kControl, ToSubject(ControlSubject{JobTag("job"), 1000}), 0, "node-b"});
  dialler.Sent(dialler.outgoing().size());
  Require(Feed(dialler, bytes, at_most, [] {}) <= kDiallerTakes);
  Require(dialler.state() != DoorState::kWelcome);
}

}  // namespace
}  // namespace ringd

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t at_most = data[0] < 2 ? 1 : data[0];
  const std::span<const std::uint8_t> bytes(data + 1, size - 1);
  if (data[0] % 2 == 0) {
    ringd::TryAnswerer(bytes, at_most);
  } else {
    ringd::TryDialler(bytes, at_most);
  }
  return 0;
}
