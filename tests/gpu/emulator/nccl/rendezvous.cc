#include "tests/gpu/emulator/nccl/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/memfd.h"
#include "proto/base/unix_socket.h"
#include "tests/gpu/emulator/nccl/last_error.h"

namespace ringd::emulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kPoll{2};
// So long nobody may answer: the founder of a split's world is perhaps not that far.
constexpr seconds kPatience{10};
constexpr seconds kMessage{20};

sockaddr_un AddressOf(const std::string& name, socklen_t* length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = "ringd-emulated-nccl-" + name;
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

struct Guest {
  UniqueFd socket;
  Hello hello;
};

// Null unless it makes room for all that have said hello.
UniqueFd LayOut(const std::vector<Guest>& guests) {
  const int size = guests.front().hello.size;
  auto memory = CreateSealedMemfd("ringd-emulated-nccl", WorldBytes(size));
  if (!memory.ok()) return UniqueFd();
  auto mapping = MemoryMapping::Map(memory->get(), WorldBytes(size));
  if (!mapping.ok()) return UniqueFd();
  auto* const cells = reinterpret_cast<RankCell*>(mapping->data());
  for (int rank = 0; rank < size; ++rank) new (&cells[rank]) RankCell();
  for (const Guest& guest : guests) cells[guest.hello.rank].identity = guest.hello.identity;
  return *std::move(memory);
}

bool IsComplete(const std::vector<Guest>& guests) {
  std::vector<bool> is_here(kMaxRanks, false);
  const int size = guests.front().hello.size;
  for (const Guest& guest : guests) {
    const Hello& hello = guest.hello;
    if (hello.size != size || hello.rank < 0 || hello.rank >= size || is_here[hello.rank]) {
      return false;
    }
    is_here[hello.rank] = true;
  }
  return static_cast<int>(guests.size()) == size;
}

void Serve(UniqueFd listener) {
  std::vector<Guest> guests;
  while (guests.empty() || !IsComplete(guests)) {
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) return;
    Hello hello{};
    if (!ReceiveWithFds(socket.get(), std::as_writable_bytes(std::span(&hello, 1)),
                        Clock::now() + kMessage)
             .ok()) {
      continue;
    }
    guests.push_back(Guest{std::move(socket), hello});
  }
  const UniqueFd memory = LayOut(guests);
  const int descriptors[] = {memory.get()};
  for (const Guest& guest : guests) {
    const auto byte = std::byte{1};
    // One that has gone meanwhile is the others' trouble, not this thread's.
    (void)SendWithFds(guest.socket.get(), std::span(&byte, 1), descriptors,
                      Clock::now() + kMessage);
  }
}

UniqueFd Dial(const std::string& name, const GiveUp& give_up) {
  socklen_t length = 0;
  const sockaddr_un address = AddressOf(name, &length);
  const Clock::time_point deadline = Clock::now() + kPatience;
  while (Clock::now() < deadline && !give_up()) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) {
      return socket;
    }
    std::this_thread::sleep_for(kPoll);
  }
  return UniqueFd();
}

}  // namespace

std::size_t WorldBytes(int size) {
  return static_cast<std::size_t>(size) * (sizeof(RankCell) + kChunkBytes);
}

bool ServeRendezvous(const std::string& name) {
  socklen_t length = 0;
  const sockaddr_un address = AddressOf(name, &length);
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), kMaxRanks) != 0) {
    return false;
  }
  std::thread([listener = std::move(listener)]() mutable { Serve(std::move(listener)); }).detach();
  return true;
}

NcclResult AttendRendezvous(const std::string& name, const Hello& hello, const GiveUp& give_up,
                            UniqueFd* memory) {
  const UniqueFd socket = Dial(name, give_up);
  if (give_up()) return kNcclInternalError;
  if (!socket.valid() ||
      !SendWithFds(socket.get(), std::as_bytes(std::span(&hello, 1)), {}, Clock::now() + kMessage)
           .ok()) {
    return Failed(kNcclRemoteError,
                  "nobody answers to this unique id: its process has ended, or "
                  "the id has been used before");
  }
  pollfd event{socket.get(), POLLIN, 0};
  while (::poll(&event, 1, static_cast<int>(kPoll.count())) == 0) {
    if (give_up()) return kNcclInternalError;
  }
  std::byte byte{};
  auto received = ReceiveWithFds(socket.get(), std::span(&byte, 1), Clock::now() + kMessage);
  if (!received.ok() || received->size() != 1) {
    return Failed(kNcclRemoteError, "the process that made the unique id has ended");
  }
  *memory = std::move(received->front());
  return kNcclSuccess;
}

}  // namespace ringd::emulator
