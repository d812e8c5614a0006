#include "proto/door/hmac.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/escaping.h"

namespace ringd {
namespace {

std::string Hex(const Sha256Digest& digest) { return absl::BytesToHexString(AsText(digest)); }

}  // namespace

TEST_CASE("Sha256: gives the vectors of FIPS 180-4") {
  CHECK(Hex(Sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(Hex(Sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("HmacSha256: gives the vectors of RFC 4231") {
  CHECK(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(Hex(HmacSha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(Hex(HmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(Hex(HmacSha256(std::string(131, '\xaa'),
                       "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("HmacSha256: an empty key and empty data are allowed") {
  CHECK(Hex(HmacSha256("", "")) ==
        "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST_CASE("EqualInConstantTime: compares contents and lengths") {
  CHECK(EqualInConstantTime("abc", "abc"));
  CHECK(EqualInConstantTime("", ""));
  CHECK_FALSE(EqualInConstantTime("abc", "abd"));
  CHECK_FALSE(EqualInConstantTime("abc", "ab"));
  CHECK_FALSE(EqualInConstantTime("", "a"));
}

}  // namespace ringd
