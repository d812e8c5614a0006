// One socket between two nodes of a communicator.
#ifndef RINGD_BACKENDS_TCP_TCP_CONNECTION_H_
#define RINGD_BACKENDS_TCP_TCP_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/collectives/message.h"
#include "backends/tcp/tcp_frame.h"
#include "backends/tcp/tcp_poller.h"
#include "backends/tcp/tcp_send.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Writes frames from where their payloads lie, and takes those that come in apart.
//
// Sending: one frame at a time. A frame that the socket took only in part goes on when there is
// room. When its payload is wanted back, the rest is copied, so that nobody waits for the other
// side.
//
// Receiving: into one buffer, where a payload begins on a cache line, and from where it is handed
// on. A read asks for what the frame still lacks and for the next frame's head, so that in the
// steady state a frame costs one call and no payload is moved.
//
// Thread safety: the progress thread only.
// Ownership: owns the socket. Payloads stay their senders'.
// Invariant: once ended() nothing is read or written any more.
class TcpConnection final : public Pollable {
 public:
  // Who has the connection, and gets what comes in.
  class Owner {
   public:
    // The poller has it on its list. May destroy it.
    virtual void OnReady(TcpConnection& connection) noexcept = 0;
    // A frame came in whole, its head is right. Must not destroy the connection.
    virtual void OnMessage(const MessageHeader& header,
                           std::span<const std::byte> payload) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  TcpConnection(UniqueFd socket, const FrameScope& scope, std::uint32_t stream, TcpPoller& poller,
                Owner& owner);
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;
  ~TcpConnection();

  // Lets the poller watch it.
  absl::Status Start();
  void set_owner(Owner& owner) noexcept { owner_ = &owner; }
  void HandleReady() noexcept { owner_->OnReady(*this); }

  int fd() const noexcept { return socket_.get(); }
  std::uint32_t stream() const noexcept { return stream_; }

  // Why it can't be used any more: kUnavailable with address and cause, or kInternal with what the
  // other side did, to go on after its name. OK while it lives.
  const absl::Status& end() const noexcept { return end_; }
  bool ended() const noexcept { return !end_.ok(); }

  // A new frame can be begun.
  bool CanBegin() const noexcept { return writable_ && !is_writing() && !ended(); }
  // Writes as much as there is room for. True: done with the payload, also if the connection has
  // ended. Requirement: CanBegin().
  bool Begin(TcpSend& send) noexcept;
  // Writes what is left, if there is room. The send that is done with now, or null.
  TcpSend* Continue() noexcept;
  // Gives up the payload that is being written if `observer` is its sender's (null: whoever's). The
  // send that is done with now, or null.
  TcpSend* TakeBack(const SendObserver* observer) noexcept;
  // The same without a copy: what is being written breaks off. Nothing may be written any more.
  TcpSend* Abandon() noexcept;
  // The frame after the present one is the last. Requirement: TakeBack(nullptr) was called; no
  // Begin() any more.
  void SayGoodbye() noexcept;
  // Nothing is left to be written.
  bool is_flushed() const noexcept { return !is_writing() && !says_goodbye_; }

  // Reads up to about `limit` bytes and hands messages to the owner. Then it is drained, on the
  // poller's list again, or has ended.
  void Read(std::size_t limit) noexcept;
  // What is to come next wakes nobody before the frame that has come in part is whole: on a slow
  // line each of its packets would. No effect between frames.
  void AwaitWholeFrame() noexcept;
  // The other side's goodbye has come.
  bool peer_left() const noexcept { return peer_left_; }

  void OnEvents(std::uint32_t events) noexcept override;

  // For the poller.
  bool on_ready_list() const noexcept { return on_ready_list_; }
  void set_on_ready_list(bool is) noexcept { on_ready_list_ = is; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };

  // The first head lies so that its payload begins on a cache line.
  static constexpr std::size_t kPayloadAt = 64;
  static constexpr std::size_t kHeadAt = kPayloadAt - sizeof(FrameHead);
  static constexpr std::size_t kBufferBytes = kPayloadAt + kMaxPayloadBytes + sizeof(FrameHead);
  // A read that does not know the next frame's length asks for what the last one had, or this: a
  // small operation's message comes whole.
  static constexpr std::size_t kLeastReadAhead = 4096;

  bool is_writing() const noexcept { return !head_left_.empty() || !payload_left_.empty(); }
  // Until all is written, or there is no room.
  void Write() noexcept;
  std::size_t ReadAhead() const noexcept;
  // Of the frame whose head has come; 0: none has.
  std::size_t MissingBytes() const noexcept;
  // The kernel reports the connection when so much has come.
  void SetLeastBytes(std::size_t bytes) noexcept;
  // False: something is wrong, the connection has ended.
  bool DeliverFrames() noexcept;
  void MoveToFront() noexcept;
  void EndByErrno(int error) noexcept;

  UniqueFd socket_;
  const FrameScope scope_;
  const std::uint32_t stream_;
  const std::string peer_address_;
  TcpPoller& poller_;
  Owner* owner_;
  absl::Status end_;
  bool on_ready_list_ = false;
  bool readable_ = false;
  bool writable_ = false;
  bool hung_up_ = false;  // nothing tells of an end that is behind what has come: read until there

  // What is being written.
  TcpSend* sending_ = nullptr;  // null: nobody's payload
  FrameHead head_;
  std::span<const std::byte> head_left_;
  std::span<const std::byte> payload_left_;
  std::vector<std::byte> rest_;  // of a payload that was taken back
  bool says_goodbye_ = false;    // as soon as the present frame is written

  // What has come: [begin_, end_of_data_).
  std::unique_ptr<std::byte, Free> buffer_;
  std::size_t begin_ = kHeadAt;
  std::size_t end_of_data_ = kHeadAt;
  std::size_t read_ahead_ = kLeastReadAhead;
  std::size_t least_bytes_ = 1;  // as SetLeastBytes was told
  bool peer_left_ = false;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_CONNECTION_H_
