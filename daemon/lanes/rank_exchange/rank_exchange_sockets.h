// The connections of all jobs' rank exchanges, as long as they are being opened.
#ifndef RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_SOCKETS_H_
#define RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_SOCKETS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/tcp/wire_sockets.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Keeps what the door hands over until the job's set-up asks for it. The set-up also has its own
// connections watched here, so that the engine has one descriptor to sleep on.
//
// Thread safety: none; the progress thread owns it.
// Ownership: owns the door's side and connections that nobody has taken.
class RankExchangeSockets {
 public:
  // `door` has the connections of DoorPurpose::kExchange.
  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<RankExchangeSockets>> Create(
      std::unique_ptr<WireSockets> door);

  // "host:port": what other nodes dial.
  const std::string& address() const { return door_->LocalAddress(); }
  // Readable when Advance has something to do, or when something happened to a watched descriptor.
  int event_fd() const noexcept { return epoll_.get(); }
  // Sorts what has come by job.
  void Advance();

  // As WireSockets.
  void Open(const WireMembership& membership) { door_->Open(membership); }
  void Dial(std::uint64_t wire_id, NodeIndex to) { door_->Dial(wire_id, to, 0); }
  void Close(std::uint64_t wire_id);
  // What has happened to this job's since the last call.
  std::vector<WireSockets::Event> TakeEvents(std::uint64_t wire_id);

  // Wakes the engine when `fd` can be read. Unwatch it before it is closed or handed over.
  void Watch(int fd);
  void Unwatch(int fd);

 private:
  RankExchangeSockets(std::unique_ptr<WireSockets> door, UniqueFd epoll);

  const std::unique_ptr<WireSockets> door_;
  UniqueFd epoll_;
  std::map<std::uint64_t, std::vector<WireSockets::Event>> events_;  // by wire id
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_SOCKETS_H_
