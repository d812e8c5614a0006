#include "daemon/peers/job_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdint>
#include <cstdlib>

namespace ringd {
namespace {

void AppendField(absl::string_view field, std::string& out) {
  const auto length = static_cast<std::uint32_t>(field.size());
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(length >> shift));
  }
  out.append(field.data(), field.size());
}

}  // namespace

std::string HmacSha256(absl::string_view key, absl::string_view data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  // OpenSSL takes a null key for "the same as before", also when its length is 0.
  const void* key_bytes = key.empty() ? "" : key.data();
  if (HMAC(EVP_sha256(), key_bytes, static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest,
           &length) == nullptr) {
    std::abort();  // only without memory
  }
  return std::string(reinterpret_cast<const char*>(digest), length);
}

std::string ComputeJobProof(absl::string_view secret, absl::string_view nonce,
                            absl::string_view job_id, absl::string_view node_name) {
  std::string input;
  input.reserve(nonce.size() + job_id.size() + node_name.size() + 12);
  AppendField(nonce, input);
  AppendField(job_id, input);
  AppendField(node_name, input);
  return HmacSha256(secret, input);
}

bool EqualInConstantTime(absl::string_view a, absl::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace ringd
