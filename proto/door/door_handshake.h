// The two sides of the door's handshake as state machines over bytes: no sockets, no clocks.
//
//   dialler                                        answerer
//   Hello: what for, whose, a nonce ──────────────▶
//          ◀────────────────────────────────────── Challenge: a nonce. Everybody gets one
//   Proof over Hello and Challenge ───────────────▶ is there a key of that subject that gives the
//                                                   same?
//          ◀────────────────────────────────────── Verdict, and a Proof over all three
//
// Whoever drives one moves bytes until the state is no longer kTalking:
//
//   recv into room(), then Received(count);   send outgoing(), then Sent(count)
//
// Why no proof can be used twice, sent back or weakened is in README.md.
#ifndef RINGD_PROTO_DOOR_DOOR_HANDSHAKE_H_
#define RINGD_PROTO_DOOR_DOOR_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"
#include "proto/door/door_buffer.h"
#include "proto/door/door_key.h"
#include "proto/door/door_message.h"

namespace ringd {

enum class DoorState : std::uint8_t {
  kTalking,
  kAsked,    // answerer only: call Decide or Refuse
  kWelcome,  // both have proved; an answerer's verdict still has to be sent
  kRefused,  // by verdict(); an answerer's still has to be sent
  kBroken,   // by trouble(): the other side is no ringd, or none that has the key
};

// Thread safety: none, as DoorAnswerer.
// Invariants: room() never reaches beyond the handshake, so that what follows on the connection is
//   not taken; no method allocates.
class DoorDialler {
 public:
  // Who it is and what it wants. `node_name` is cut to 64 bytes.
  struct Intent {
    DoorPurpose purpose{};
    DoorSubject subject{};
    std::uint32_t flags = 0;
    absl::string_view node_name;
  };
  // Draws a nonce: one dialler for each connection.
  DoorDialler(const DoorKey& key, const Intent& intent) noexcept;

  std::span<std::byte> room() noexcept { return buffer_.room(); }
  void Received(std::size_t count) noexcept;
  std::span<const std::byte> outgoing() const noexcept { return buffer_.outgoing(); }
  void Sent(std::size_t count) noexcept { buffer_.Sent(count); }

  const DoorNonce& nonce() const noexcept { return nonce_; }
  // True once the proof is on its way: what is left is the answerer's verdict.
  bool challenged() const noexcept { return challenged_; }
  DoorState state() const noexcept { return state_; }
  DoorVerdict verdict() const noexcept { return verdict_; }              // kWelcome, kRefused
  absl::string_view trouble() const noexcept { return trouble_; }        // kBroken
  const DoorKey& session_key() const noexcept { return session_key_; }   // kWelcome
  const DoorChallenge& answerer() const noexcept { return challenge_; }  // as far as it has come

 private:
  void OnChallenge() noexcept;
  void OnVerdict() noexcept;
  void Break(absl::string_view why) noexcept;

  const DoorKey key_;
  DoorNonce nonce_{};
  DoorHelloBytes hello_bytes_;
  DoorChallengeBytes challenge_bytes_{};
  DoorChallenge challenge_;
  DoorBuffer buffer_;
  DoorState state_ = DoorState::kTalking;
  bool challenged_ = false;
  DoorVerdict verdict_ = DoorVerdict::kWelcome;
  absl::string_view trouble_;
  DoorKey session_key_{};
};

// As DoorDialler.
class DoorAnswerer {
 public:
  // `node_name` is cut to 64 bytes.
  DoorAnswerer(std::uint32_t flags, absl::string_view node_name) noexcept;

  std::span<std::byte> room() noexcept { return buffer_.room(); }
  void Received(std::size_t count) noexcept;
  std::span<const std::byte> outgoing() const noexcept { return buffer_.outgoing(); }
  void Sent(std::size_t count) noexcept { buffer_.Sent(count); }

  // kAsked: says who may come in with this Hello: whoever has one of the keys. Takes as long for
  // each of them, whichever is right. Who has none hears `otherwise`, which is not kWelcome.
  void Decide(std::span<const DoorKey> keys, DoorVerdict otherwise) noexcept;
  // kAsked: says no for another reason. Requirement: not kWelcome.
  void Refuse(DoorVerdict verdict) noexcept;

  DoorState state() const noexcept { return state_; }
  DoorVerdict verdict() const noexcept { return verdict_; }        // kWelcome, kRefused
  absl::string_view trouble() const noexcept { return trouble_; }  // kBroken
  const DoorHello& hello() const noexcept { return hello_; }       // as far as it has come
  std::size_t matched() const noexcept { return matched_; }  // kWelcome: the first key that fits
  const DoorKey& session_key() const noexcept { return session_key_; }  // kWelcome

 private:
  void OnHello() noexcept;
  void SendVerdict(DoorVerdict verdict, const Sha256Digest& proof) noexcept;

  DoorChallenge challenge_;
  DoorChallengeBytes challenge_bytes_;
  DoorHelloBytes hello_bytes_{};
  DoorHello hello_;
  Sha256Digest proof_{};
  DoorBuffer buffer_;
  DoorState state_ = DoorState::kTalking;
  bool greeted_ = false;  // the Hello is there
  DoorVerdict verdict_ = DoorVerdict::kWelcome;
  absl::string_view trouble_;
  std::size_t matched_ = 0;
  DoorKey session_key_{};
};

}  // namespace ringd

#endif  // RINGD_PROTO_DOOR_DOOR_HANDSHAKE_H_
