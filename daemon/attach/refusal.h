// Tells a connection why it is turned away, in the protocol that it speaks.
#ifndef RINGD_DAEMON_ATTACH_REFUSAL_H_
#define RINGD_DAEMON_ATTACH_REFUSAL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ringd {

// Both send at most one message without blocking, into a socket that nothing was sent to before, and
// drop what the peer has sent so far; the caller closes the socket.

// A refusing AttachReply. `why` is not ok; its text is cut to fit.
void RefuseAttach(int socket, const absl::Status& why) noexcept;

// HTTP/2 SETTINGS and GOAWAY: gRPC's clients show the text as the reason of their UNAVAILABLE.
void RefuseGrpc(int socket, absl::string_view why);

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_REFUSAL_H_
