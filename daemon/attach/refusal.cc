#include "daemon/attach/refusal.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "proto/attach/handshake.h"

namespace ringd {
namespace {

constexpr int kMaxReads = 16;
constexpr std::size_t kMaxGoAwayText = 1024;

// Best effort: a peer that has gone needs no reason.
void SendAndDiscard(int socket, const void* bytes, std::size_t size) noexcept {
  static_cast<void>(::send(socket, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT));
  // Closing a socket with unread bytes gives the peer ECONNRESET, perhaps before it reads the reason.
  char scratch[4096];
  for (int i = 0; i < kMaxReads; ++i) {
    if (::recv(socket, scratch, sizeof(scratch), MSG_DONTWAIT) <= 0) break;
  }
}

void AppendFrameHeader(std::string& out, std::uint32_t length, char type) {
  out += static_cast<char>(length >> 16);
  out += static_cast<char>(length >> 8);
  out += static_cast<char>(length);
  out += type;
  out.append(5, '\0');  // no flags; stream 0, the connection
}

}  // namespace

void RefuseAttach(int socket, const absl::Status& why) noexcept {
  AttachReply reply{};
  reply.magic = kAttachMagic;
  reply.version = kAttachVersion;
  reply.status = static_cast<std::int32_t>(why.code());
  const absl::string_view text = why.message().substr(0, sizeof(reply.text));
  reply.text_length = static_cast<std::uint32_t>(text.size());
  std::memcpy(reply.text, text.data(), text.size());
  SendAndDiscard(socket, &reply, sizeof(reply));
}

void RefuseGrpc(int socket, absl::string_view why) {
  constexpr char kSettings = 4, kGoAway = 7;
  constexpr char kInadequateSecurity = 0xc;
  why = why.substr(0, kMaxGoAwayText);
  std::string frames;
  AppendFrameHeader(frames, 0, kSettings);
  AppendFrameHeader(frames, static_cast<std::uint32_t>(8 + why.size()), kGoAway);
  frames.append(4, '\0');  // the last stream that was served: none
  frames.append(3, '\0');
  frames += kInadequateSecurity;
  frames.append(why.data(), why.size());
  SendAndDiscard(socket, frames.data(), frames.size());
}

}  // namespace ringd
