// Which build of a program this is.
#ifndef RINGD_PROTO_BASE_BUILD_ID_H_
#define RINGD_PROTO_BASE_BUILD_ID_H_

#include <string>

namespace ringd {

// The first 12 hexadecimal digits of the number that the linker has given this program's file
// (NT_GNU_BUILD_ID, ld's --build-id): another one wherever its code is another, the same in copies
// and without symbols. "unknown" if it has none. Any thread; allocates.
std::string BuildId();

// "0.1.0 (build 5f21064dd00b)".
std::string VersionAndBuild(const char* version);

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_BUILD_ID_H_
