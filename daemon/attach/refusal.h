// Tells a trainer why it is turned away.
#ifndef RINGD_DAEMON_ATTACH_REFUSAL_H_
#define RINGD_DAEMON_ATTACH_REFUSAL_H_

#include "absl/status/status.h"

namespace ringd {

// Sends a refusing AttachReply without blocking, into a socket that nothing was sent to before, and
// drops what the peer has sent so far; the caller closes the socket. `why` is not ok; its text is
// cut to fit.
void RefuseAttach(int socket, const absl::Status& why) noexcept;

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_REFUSAL_H_
