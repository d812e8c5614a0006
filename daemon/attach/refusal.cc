#include "daemon/attach/refusal.h"

#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "proto/attach/handshake.h"

namespace ringd {

void RefuseAttach(int socket, const absl::Status& why) noexcept {
  constexpr int kMaxReads = 16;
  AttachReply reply{};
  reply.magic = kAttachMagic;
  reply.version = kAttachVersion;
  reply.status = static_cast<std::int32_t>(why.code());
  const absl::string_view text = why.message().substr(0, sizeof(reply.text));
  reply.text_length = static_cast<std::uint32_t>(text.size());
  std::memcpy(reply.text, text.data(), text.size());
  // Best effort: a peer that has gone needs no reason.
  static_cast<void>(::send(socket, &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT));
  // Closing a socket with unread bytes gives the peer ECONNRESET, perhaps before it reads the
  // reason.
  char scratch[4096];
  for (int i = 0; i < kMaxReads; ++i) {
    if (::recv(socket, scratch, sizeof(scratch), MSG_DONTWAIT) <= 0) break;
  }
}

}  // namespace ringd
