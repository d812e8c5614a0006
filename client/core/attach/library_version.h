// The release of this library.
#ifndef RINGD_CLIENT_CORE_ATTACH_LIBRARY_VERSION_H_
#define RINGD_CLIENT_CORE_ATTACH_LIBRARY_VERSION_H_

namespace ringd::client {

inline constexpr char kLibraryVersion[] = "0.1.0";

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_LIBRARY_VERSION_H_
