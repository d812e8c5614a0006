// UCX's libraries, loaded by the first transport that needs them.
#ifndef RINGD_BACKENDS_UCX_UCX_LIBRARY_H_
#define RINGD_BACKENDS_UCX_UCX_LIBRARY_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ringd {

// After it the functions of <ucp/api/ucp.h> that this folder uses can be called, and not before. A
// process that never comes here has nothing of UCX's in it: libucs, once loaded, puts hooks into
// the C library's mmap() and the like before main(), and complains where it may not.
//
// The hooks tell UCX when memory goes that it has registered with a network card. They stay out
// where nothing is registered (`transports` names TCP alone) and where the process may not change
// code (systemd's MemoryDenyWriteExecute): UCX then keeps no registrations. UCX_MEM_EVENTS, if it
// is set, decides. What the first call has decided holds.
//   kFailedPrecondition: UCX is not installed, or too old; the message says what the loader says.
absl::Status LoadUcx(absl::string_view transports);

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_LIBRARY_H_
