// Unpredictable bytes: nonces and session tokens.
#ifndef RINGD_DAEMON_PEERS_SECURE_RANDOM_H_
#define RINGD_DAEMON_PEERS_SECURE_RANDOM_H_

#include <cstddef>
#include <string>

namespace ringd {

// `count` bytes from the kernel's generator. Ends the process if there is none: nothing safe can be
// done without.
std::string RandomBytes(std::size_t count);

// `bytes` random bytes as 2 * bytes lower-case hexadecimal digits.
std::string RandomHexToken(std::size_t bytes);

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_SECURE_RANDOM_H_
