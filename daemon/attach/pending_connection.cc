#include "daemon/attach/pending_connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace ringd {
namespace {

bool BeginsLike(const char* bytes, std::size_t count, const void* expected) {
  return std::memcmp(bytes, expected, count) == 0;
}

}  // namespace

PendingConnection::Progress PendingConnection::Read() noexcept {
  if (received_ > 0) return ReadRequest();
  char first[sizeof(kGrpcPreface)];
  ssize_t count = 0;
  do {
    count = ::recv(socket_.get(), first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return errno == EAGAIN ? Progress::kWaiting : Progress::kClosed;
  if (count == 0) return Progress::kClosed;

  const std::size_t seen = static_cast<std::size_t>(count);
  const bool grpc = BeginsLike(first, seen, kGrpcPreface);
  const bool attach = BeginsLike(first, seen, &kAttachMagic);
  if (!grpc && !attach) return Progress::kUnknown;
  if (seen < sizeof(first)) return Progress::kWaiting;
  return grpc ? Progress::kGrpc : ReadRequest();
}

PendingConnection::Progress PendingConnection::ReadRequest() noexcept {
  char* bytes = reinterpret_cast<char*>(&request_);
  while (received_ < sizeof(request_)) {
    // Without room for control data: descriptors that a client sends along are closed by the
    // kernel.
    const ssize_t count =
        ::recv(socket_.get(), bytes + received_, sizeof(request_) - received_, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN ? Progress::kWaiting : Progress::kClosed;
    if (count == 0) return Progress::kClosed;
    received_ += static_cast<std::size_t>(count);
  }
  return Progress::kAttach;
}

}  // namespace ringd
