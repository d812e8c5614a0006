// The probe: a short-lived process, ringd's own program, that opens one vendor's library and tells
// what it finds. So the library's crash or hang is never ringd's.
#ifndef RINGD_DAEMON_GPU_GPU_PROBE_H_
#define RINGD_DAEMON_GPU_GPU_PROBE_H_

#include <cstdint>
#include <string>

namespace ringd {

enum class ProbedLibrary : std::uint8_t { kCuda, kNccl };

// The life of the process (`ringd --probe-gpus cuda --cuda-library FILE`): prints v1.GpuFindings to
// standard output, a line of JSON for each step, and ends the process. The exit code is 0 if it
// came to its end, whatever it found. What the library itself prints goes to standard error.
//
// Blocks for as long as the library does. Whoever has started it sets the deadline; without that,
// the process ends itself after a minute, and with the thread that started it.
[[noreturn]] void ProbeGpus(ProbedLibrary library, const std::string& file);

}  // namespace ringd

#endif  // RINGD_DAEMON_GPU_GPU_PROBE_H_
