#include "client/core/tensors/direct_reads.h"

#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace ringd::client {
namespace {

// Not 0, which is what a withdrawn token looks like; 0 if there is no randomness to be had.
std::uint64_t RandomToken() noexcept {
  std::uint64_t token = 0;
  if (::getrandom(&token, sizeof(token), GRND_NONBLOCK) != sizeof(token)) return 0;
  return token | 1;
}

// Reads `bytes` at `address` and then the token: 0 or an errno. The kernel goes through the pieces
// in order (process_vm_readv(2)) and looks the address space up once.
int ReadWithToken(pid_t pid, std::uint64_t address, void* to, std::size_t bytes,
                  std::uint64_t token_address, std::uint64_t& token) noexcept {
  iovec local[2] = {{to, bytes}, {&token, sizeof(token)}};
  iovec remote[2] = {{reinterpret_cast<void*>(address), bytes},
                     {reinterpret_cast<void*>(token_address), sizeof(token)}};
  // Either list may begin with an empty piece.
  const ssize_t read = ::process_vm_readv(pid, local, 2, remote, 2, 0);
  if (read < 0) return errno;
  // A part: what comes next is not mapped.
  return static_cast<std::size_t>(read) == bytes + sizeof(token) ? 0 : EFAULT;
}

}  // namespace

DirectReads::DirectReads(const JobSegmentView& segment, std::uint32_t self, DirectReading reading)
    : segment_(segment),
      self_(self),
      token_(std::make_unique<std::atomic<std::uint64_t>>(RandomToken())),
      peers_(segment.member_count()) {
  const std::uint64_t token = token_->load(std::memory_order_relaxed);
  if (reading == DirectReading::kOff || token == 0) {
    verdict_.store(Verdict::kNo, std::memory_order_release);
    Publish({Reach::State::kOff, 0, 0});
    return;
  }
  if (reading == DirectReading::kAllowToAll) {
    // Fails where there is no Yama, and is not needed there.
    static_cast<void>(::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0));
  }
  SharedMember& own = segment_.Member(self_);
  own.token_address = reinterpret_cast<std::uintptr_t>(token_.get());
  own.token = token;
  own.pid = ::getpid();
  Publish({Reach::State::kOffered, 0, 0});
  static_cast<void>(Allowed());
}

Reach DirectReads::ReachOf(std::uint32_t member) const noexcept {
  return Reach::FromWord(segment_.Member(member).reach.load(std::memory_order_acquire));
}

void DirectReads::Publish(Reach reach) noexcept {
  segment_.Member(self_).reach.store(reach.ToWord(), std::memory_order_release);
}

bool DirectReads::Settle() noexcept {
  MutexLock lock(mutex_);
  bool all_can = ReachOf(self_).state != Reach::State::kOffered || TryOthers();
  bool any_cannot = false;
  for (std::uint32_t m = 0; m < segment_.member_count(); ++m) {
    const Reach::State state = ReachOf(m).state;
    all_can = all_can && state == Reach::State::kReadsAll;
    any_cannot = any_cannot || state == Reach::State::kCannot || state == Reach::State::kOff;
  }
  if (any_cannot) verdict_.store(Verdict::kNo, std::memory_order_release);
  if (all_can && !any_cannot) verdict_.store(Verdict::kYes, std::memory_order_release);
  return all_can && !any_cannot;
}

bool DirectReads::TryOthers() {
  for (std::uint32_t m = 0; m < segment_.member_count(); ++m) {
    Peer& peer = peers_[m];
    if (m == self_ || peer.tried) continue;
    const Reach::State state = ReachOf(m).state;
    if (state == Reach::State::kUnknown || state == Reach::State::kOff) return false;
    // Copied: what stands in the segment may change, what was tried does not.
    const SharedMember& shared = segment_.Member(m);
    peer = {true, shared.pid, shared.token_address, shared.token};
    std::uint64_t token = 0;
    const int error = ReadWithToken(peer.pid, 0, nullptr, 0, peer.token_address, token);
    if (error != 0 || token != peer.token) {
      Publish(
          {Reach::State::kCannot, static_cast<std::uint8_t>(error), static_cast<std::uint8_t>(m)});
      return false;
    }
  }
  Publish({Reach::State::kReadsAll, 0, 0});
  return true;
}

bool DirectReads::IsReadable(const void* address, std::size_t bytes) noexcept {
  if (bytes == 0) return true;
  char ends[2];
  auto* const first = static_cast<char*>(const_cast<void*>(address));
  iovec local = {ends, 2};
  iovec remote[2] = {{first, 1}, {first + (bytes - 1), 1}};
  return ::process_vm_readv(::getpid(), &local, 1, remote, 2, 0) == 2;
}

int DirectReads::Read(std::uint32_t member, std::uint64_t address,
                      std::span<std::byte> to) noexcept {
  if (ReachOf(self_).state != Reach::State::kReadsAll) return EPERM;
  const Peer& peer = peers_[member];
  std::uint64_t token = 0;
  const int error =
      ReadWithToken(peer.pid, address, to.data(), to.size(), peer.token_address, token);
  if (error != 0) return error;
  return token == peer.token ? kOk : kWithdrawn;
}

void DirectReads::Withdraw() noexcept {
  // What follows in this thread, the caller's use of its memory, must not be seen by who still sees
  // the token.
  token_->store(0, std::memory_order_seq_cst);
}

}  // namespace ringd::client
