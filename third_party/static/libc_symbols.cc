// Symbols of the C library that libringd replaces for its own use (linker option --wrap): code in
// it that says NAME gets __wrap_NAME.
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {

// Code that was compiled for programs reads the variable directly, which a shared library may do
// with its own alone. So this one is the library's own, set before other code of the library runs.
extern FILE* __real_stderr;
FILE* __wrap_stderr = nullptr;

__attribute__((constructor(101))) static void CopyStderr() { __wrap_stderr = __real_stderr; }

// std::random_device calls it, which gRPC uses for back-off times. glibc has it from 2.36 on.
std::uint32_t __wrap_arc4random() {
  std::uint32_t value = 0;
  // Up to 256 bytes come in one piece. It fails only for a signal, or where there is no such call.
  while (::getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value))) {
    if (errno != EINTR) std::abort();
  }
  return value;
}

}  // extern "C"
