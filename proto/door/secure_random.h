// Unpredictable bytes: nonces and session tokens.
#ifndef RINGD_PROTO_DOOR_SECURE_RANDOM_H_
#define RINGD_PROTO_DOOR_SECURE_RANDOM_H_

#include <cstddef>
#include <span>
#include <string>

namespace ringd {

// Fills `bytes` from the kernel's generator. Ends the process if there is none: nothing safe can be
// done without.
void FillRandom(std::span<std::byte> bytes) noexcept;

// The same, as a string of `count` bytes.
std::string RandomBytes(std::size_t count);

// `bytes` random bytes as 2 * bytes lower-case hexadecimal digits.
std::string RandomHexToken(std::size_t bytes);

}  // namespace ringd

#endif  // RINGD_PROTO_DOOR_SECURE_RANDOM_H_
