#include "proto/door/door_key.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

namespace ringd {
namespace {

// Words and bytes behind each other, in room for the longest of them all.
class Transcript {
 public:
  explicit Transcript(absl::string_view label) noexcept { Add(label); }

  Transcript& Add(absl::string_view part) noexcept {
    std::memcpy(bytes_.data() + size_, part.data(), part.size());
    size_ += part.size();
    return *this;
  }
  Transcript& Add(std::span<const std::byte> part) noexcept { return Add(AsText(part)); }
  absl::string_view text() const noexcept { return {bytes_.data(), size_}; }

 private:
  static constexpr std::size_t kMostLabelBytes = 32;
  std::array<char, kMostLabelBytes + kDoorHelloBytes + kDoorChallengeBytes + 4> bytes_;
  std::size_t size_ = 0;
};

template <typename Integer>
std::string LittleEndian(Integer value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(value); ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  return bytes;
}

void AppendField(absl::string_view field, std::string& out) {
  out += LittleEndian(static_cast<std::uint32_t>(field.size()));
  out.append(field.data(), field.size());
}

DoorKey KeyOfWireId(const DoorKey& job, absl::string_view purpose, std::uint64_t wire_id) {
  const std::string id = LittleEndian(wire_id);
  return HmacSha256(AsText(job), Transcript(purpose).Add(id).text());
}

}  // namespace

DoorKey JobKey(absl::string_view cluster_key, absl::string_view job_id, absl::string_view secret,
               std::uint32_t uid) {
  std::string input = "ringd job 2";
  AppendField(job_id, input);
  AppendField(secret, input);
  if (secret.empty()) input += LittleEndian(uid);
  return HmacSha256(cluster_key, input);
}

DoorKey KeyForControl(const DoorKey& job) noexcept { return HmacSha256(AsText(job), "control"); }

DoorKey KeyForWire(const DoorKey& job, std::uint64_t wire_id) noexcept {
  return KeyOfWireId(job, "wire", wire_id);
}

DoorKey KeyForExchange(const DoorKey& job, std::uint64_t wire_id) noexcept {
  return KeyOfWireId(job, "exchange", wire_id);
}

Sha256Digest DiallerProof(const DoorKey& key, const DoorHelloBytes& hello,
                          const DoorChallengeBytes& challenge) noexcept {
  return HmacSha256(AsText(key),
                    Transcript("ringd door dialler 1").Add(hello).Add(challenge).text());
}

Sha256Digest AnswererProof(const DoorKey& key, const DoorHelloBytes& hello,
                           const DoorChallengeBytes& challenge, DoorVerdict verdict) noexcept {
  std::array<std::byte, 4> word;
  StoreVerdict(verdict, word);
  return HmacSha256(AsText(key),
                    Transcript("ringd door answerer 1").Add(hello).Add(challenge).Add(word).text());
}

DoorKey SessionKey(const DoorKey& key, const DoorHelloBytes& hello,
                   const DoorChallengeBytes& challenge) noexcept {
  return HmacSha256(AsText(key),
                    Transcript("ringd door session 1").Add(hello).Add(challenge).text());
}

}  // namespace ringd
