#include "proto/door/door_handshake.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "proto/door/secure_random.h"

namespace ringd {
namespace {

constexpr absl::string_view kNoRingd = "it does not speak as a ringd";

bool IsKnown(DoorVerdict verdict) noexcept {
  switch (verdict) {
    case DoorVerdict::kWelcome:
    case DoorVerdict::kUnknownSubject:
    case DoorVerdict::kWrongKey:
    case DoorVerdict::kFull:
    case DoorVerdict::kVersion:
    case DoorVerdict::kNoOtherNodes:
    case DoorVerdict::kDraining:
    case DoorVerdict::kOneself:
      return true;
  }
  return false;
}

}  // namespace

// ---- DoorDialler ----

DoorDialler::DoorDialler(const DoorKey& key, const Intent& intent) noexcept : key_(key) {
  DoorHello hello;
  hello.purpose = intent.purpose;
  hello.flags = intent.flags;
  hello.subject = intent.subject;
  hello.node_name = ToDoorName(intent.node_name);
  FillRandom(nonce_);
  hello.nonce = nonce_;
  hello_bytes_ = Encode(hello);
  buffer_.Send(hello_bytes_);
  buffer_.Await(kDoorChallengeBytes);
}

void DoorDialler::Received(std::size_t count) noexcept {
  buffer_.Received(count);
  if (challenged_) {
    if (buffer_.whole()) OnVerdict();
    return;
  }
  const std::span<const std::byte> received = buffer_.received();
  if (!BeginsWithDoorMagic(received)) return Break(kNoRingd);
  if (received.size() >= kDoorPrefixBytes) {
    challenge_.version = VersionOf(buffer_.First<kDoorPrefixBytes>());
    if (challenge_.version != kDoorVersion) {
      // What follows is in words of that version.
      state_ = DoorState::kRefused;
      verdict_ = DoorVerdict::kVersion;
      return buffer_.Await(0);
    }
  }
  if (buffer_.whole()) OnChallenge();
}

void DoorDialler::OnChallenge() noexcept {
  const auto bytes = buffer_.First<kDoorChallengeBytes>();
  std::copy(bytes.begin(), bytes.end(), challenge_bytes_.begin());
  challenge_ = DecodeChallenge(bytes);
  challenged_ = true;
  buffer_.Send(DiallerProof(key_, hello_bytes_, challenge_bytes_));
  buffer_.Await(kDoorVerdictBytes);
}

void DoorDialler::OnVerdict() noexcept {
  const auto bytes = buffer_.First<kDoorVerdictBytes>();
  verdict_ = LoadVerdict(bytes.first<4>());
  if (!IsKnown(verdict_)) return Break("it gave a verdict that this version does not know");
  if (verdict_ != DoorVerdict::kWelcome) {
    state_ = DoorState::kRefused;
    return buffer_.Await(0);
  }
  const Sha256Digest proof = AnswererProof(key_, hello_bytes_, challenge_bytes_, verdict_);
  if (!EqualInConstantTime(AsText(proof), AsText(bytes.subspan<4>()))) {
    return Break("it let us in without the key");
  }
  session_key_ = SessionKey(key_, hello_bytes_, challenge_bytes_);
  state_ = DoorState::kWelcome;
  buffer_.Await(0);
}

void DoorDialler::Break(absl::string_view why) noexcept {
  state_ = DoorState::kBroken;
  trouble_ = why;
  buffer_.Await(0);
}

// ---- DoorAnswerer ----

DoorAnswerer::DoorAnswerer(std::uint32_t flags, absl::string_view node_name) noexcept {
  challenge_.flags = flags;
  challenge_.node_name = ToDoorName(node_name);
  FillRandom(challenge_.nonce);
  challenge_bytes_ = Encode(challenge_);
  buffer_.Await(kDoorHelloBytes);
}

void DoorAnswerer::Received(std::size_t count) noexcept {
  buffer_.Received(count);
  if (greeted_) {
    if (!buffer_.whole()) return;
    std::copy_n(buffer_.received().begin(), proof_.size(), proof_.begin());
    state_ = DoorState::kAsked;
    return buffer_.Await(0);
  }
  const std::span<const std::byte> received = buffer_.received();
  if (!BeginsWithDoorMagic(received)) {
    state_ = DoorState::kBroken;
    trouble_ = kNoRingd;
    return buffer_.Await(0);
  }
  if (received.size() >= kDoorPrefixBytes) {
    hello_.version = VersionOf(buffer_.First<kDoorPrefixBytes>());
    if (hello_.version != kDoorVersion) {
      // Its Hello may be shorter than ours. The challenge tells it our version.
      buffer_.Send(challenge_bytes_);
      return SendVerdict(DoorVerdict::kVersion, {});
    }
  }
  if (buffer_.whole()) OnHello();
}

void DoorAnswerer::OnHello() noexcept {
  const auto bytes = buffer_.First<kDoorHelloBytes>();
  std::copy(bytes.begin(), bytes.end(), hello_bytes_.begin());
  hello_ = DecodeHello(bytes);
  greeted_ = true;
  buffer_.Send(challenge_bytes_);
  buffer_.Await(kDoorProofBytes);
}

void DoorAnswerer::Decide(std::span<const DoorKey> keys, DoorVerdict otherwise) noexcept {
  assert(state_ == DoorState::kAsked);
  std::size_t matched = keys.size();
  for (std::size_t i = keys.size(); i-- > 0;) {
    const Sha256Digest expected = DiallerProof(keys[i], hello_bytes_, challenge_bytes_);
    if (EqualInConstantTime(AsText(expected), AsText(proof_))) matched = i;
  }
  if (matched == keys.size()) return Refuse(otherwise);
  matched_ = matched;
  const DoorKey& key = keys[matched];
  session_key_ = SessionKey(key, hello_bytes_, challenge_bytes_);
  SendVerdict(DoorVerdict::kWelcome,
              AnswererProof(key, hello_bytes_, challenge_bytes_, DoorVerdict::kWelcome));
}

void DoorAnswerer::Refuse(DoorVerdict verdict) noexcept {
  assert(state_ == DoorState::kAsked && verdict != DoorVerdict::kWelcome);
  SendVerdict(verdict, {});
}

void DoorAnswerer::SendVerdict(DoorVerdict verdict, const Sha256Digest& proof) noexcept {
  std::array<std::byte, 4> word;
  StoreVerdict(verdict, word);
  buffer_.Send(word);
  buffer_.Send(proof);
  verdict_ = verdict;
  state_ = verdict == DoorVerdict::kWelcome ? DoorState::kWelcome : DoorState::kRefused;
  buffer_.Await(0);
}

}  // namespace ringd
