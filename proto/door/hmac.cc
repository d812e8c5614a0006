#include "proto/door/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <cstdlib>

namespace ringd {
namespace {

const unsigned char* BytesOf(absl::string_view text) noexcept {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Sha256Digest Sha256(absl::string_view data) noexcept {
  Sha256Digest digest;
  static_assert(digest.size() == SHA256_DIGEST_LENGTH);
  ::SHA256(BytesOf(data), data.size(), reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

Sha256Digest HmacSha256(absl::string_view key, absl::string_view data) noexcept {
  Sha256Digest digest;
  unsigned int length = 0;
  // OpenSSL takes a null key for "the same as before", also when its length is 0.
  const void* key_bytes = key.empty() ? "" : key.data();
  if (::HMAC(EVP_sha256(), key_bytes, static_cast<int>(key.size()), BytesOf(data), data.size(),
             reinterpret_cast<unsigned char*>(digest.data()), &length) == nullptr ||
      length != digest.size()) {
    std::abort();  // only without memory
  }
  return digest;
}

bool EqualInConstantTime(absl::string_view a, absl::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace ringd
