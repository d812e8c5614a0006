// WireSockets over real TCP on the loopback interface, for tests: who connects says who it is, and
// is believed.
#ifndef RINGD_TESTS_BACKENDS_TCP_LOOPBACK_SOCKETS_H_
#define RINGD_TESTS_BACKENDS_TCP_LOOPBACK_SOCKETS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "backends/tcp/wire_sockets.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Everything happens in Take(), without blocking. A dial is tried again while the other side does
// not know the wire id, and fails at once if nobody listens there.
//
// Thread safety: one thread.
class LoopbackSockets final : public WireSockets {
 public:
  // What who connects says at first, and the byte that answers.
  struct Hello {
    std::uint64_t wire_id = 0;
    std::int32_t from = 0;
    std::int32_t to = 0;
    std::uint32_t stream = 0;
    std::uint32_t reserved = 0;
  };
  static constexpr char kWelcome = 'w';
  static constexpr char kUnknown = 'u';  // and the connection ends

  LoopbackSockets();
  ~LoopbackSockets() override = default;

  const std::string& LocalAddress() const override { return address_; }
  int event_fd() const override { return epoll_.get(); }
  void Open(const WireMembership& membership) override;
  void Close(std::uint64_t wire_id) override;
  void Dial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream) override;
  std::vector<Event> Take() override;

 private:
  struct Caller {  // has connected here, and not said all of its hello
    UniqueFd socket;
    Hello hello;
    std::size_t received = 0;
  };
  struct Call {  // of this side
    Hello hello;
    UniqueFd socket;  // invalid: to be tried again at `again_at`
    bool greeted = false;
    Clock::time_point again_at;
  };

  void Watch(int fd, std::uint32_t events) const;
  void SetTimer() const;
  void BeginCall(Call& call);
  void Accept();
  // True: it has ended, with an event or not.
  bool Hear(Caller& caller);
  bool GoOn(Call& call);
  bool End(Call& call, absl::Status status);

  UniqueFd epoll_;
  UniqueFd listener_;
  UniqueFd timer_;
  std::string address_;
  std::map<std::uint64_t, WireMembership> open_;
  std::list<Caller> callers_;
  std::list<Call> calls_;
  std::vector<Event> events_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_TCP_LOOPBACK_SOCKETS_H_
