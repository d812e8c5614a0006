#include "daemon/door/stranger.h"

#include <sys/socket.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/door/door_bytes.h"

namespace ringd {

Stranger::Stranger(AcceptedSocket accepted, const DoorAnswerer& answerer,
                   Clock::time_point deadline)
    : socket_(std::move(accepted.fd)),
      source_(std::move(accepted.source)),
      from_(std::move(accepted.whole)),
      deadline_(deadline),
      answerer_(answerer) {}

Stranger::Progress Stranger::Gone(absl::string_view why) {
  why_ = why;
  return Progress::kGone;
}

void Stranger::Decide(const std::vector<DoorKey>& keys, DoorVerdict otherwise) noexcept {
  answerer_.Decide(keys, otherwise);
  if (answerer_.state() == DoorState::kWelcome) key_ = keys[answerer_.matched()];
}

Stranger::Progress Stranger::Advance() {
  if (refused_) return Linger();
  for (;;) {
    const DoorTransfer sent = SendOutgoing(socket_.get(), answerer_);
    if (sent == DoorTransfer::kFailed) return Gone("it closed the connection");
    switch (answerer_.state()) {
      case DoorState::kTalking:
        break;
      case DoorState::kAsked:
        return Progress::kAsked;
      case DoorState::kWelcome:
        if (sent != DoorTransfer::kDone) return Progress::kWaiting;
        // It may have lost patience before it heard that it is welcome: then it comes again.
        return HasClosed() ? Gone("it closed the connection") : Progress::kProven;
      case DoorState::kRefused:
        if (sent != DoorTransfer::kDone) return Progress::kWaiting;
        refused_ = true;
        ::shutdown(socket_.get(), SHUT_WR);
        return Linger();
      case DoorState::kBroken:
        return Gone(answerer_.trouble());
    }
    switch (ReceiveOnce(socket_.get(), answerer_)) {
      case DoorTransfer::kDone:
        break;
      case DoorTransfer::kBlocked:
        return Progress::kWaiting;
      case DoorTransfer::kEnded:
      case DoorTransfer::kFailed:
        return Gone("it closed the connection");
    }
  }
}

bool Stranger::HasClosed() const noexcept {
  std::byte next{};
  const ssize_t count = ::recv(socket_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

Stranger::Progress Stranger::Linger() {
  std::array<std::byte, 128> rest;
  while (dropped_ < kMostDropped) {
    const ssize_t count = ::recv(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Progress::kWaiting;
    if (count <= 0) break;
    dropped_ += static_cast<std::size_t>(count);
  }
  return Gone("it was refused");
}

std::string Stranger::Describe() const {
  const std::string name = ReadableName(answerer_.hello().node_name);
  return name.empty() ? from_ : absl::StrCat(name, " at ", from_);
}

}  // namespace ringd
