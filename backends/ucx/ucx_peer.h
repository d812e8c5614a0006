// The connections to one other ringd.
#ifndef RINGD_BACKENDS_UCX_UCX_PEER_H_
#define RINGD_BACKENDS_UCX_UCX_PEER_H_

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/backend.h"
#include "backends/collectives/message.h"
#include "backends/collectives/message_wire.h"
#include "backends/collectives/queued_send.h"
#include "backends/collectives/weighted_fair_queue.h"
#include "backends/ucx/ucx_stream.h"

namespace ringd {

class UcxPeer;

// One message on its way, from Send() until UCX is done with it. UCX reads the header from here.
struct UcxSend : QueuedSend<UcxSend> {
  const void* wire = nullptr;  // which communicator's, to find them all
  UcxPeer* peer = nullptr;
  std::uint32_t stream = 0;
};

// One communicator's bulk messages to one peer.
using UcxFlow = WeightedFairQueue<UcxSend>::Flow;

// The streams to another worker, and the messages that wait for them. Shared by all communicators
// with nodes there, and kept when none is left: the next job finds it connected.
//
// UCX is given few messages at a time. The rest waits here, where urgent ones can overtake, those
// of a cancelled operation can be taken back, and the communicators' bulk takes turns by their
// weights.
//
// While several communicators share it, urgent messages have a connection to themselves, and UCX
// gets one bulk message at a time, chosen in Advance(): when everybody has had a chance to refill.
//
// A further stream is used when it is connected. Until then, and where none is to be had, the first
// carries everything: a connection that would only help can't do harm. One that has carried
// messages and breaks is the loss of the peer.
//
// Thread safety: the progress thread only. UCX calls back from inside ucp_worker_progress().
// Ownership: owns the streams; payloads stay their senders'.
// Invariant: once lost, it stays lost; what is sent to it is dropped.
class UcxPeer {
 public:
  // `name` is for people. Bulk goes over `bulk_streams`, 1 or more; beside two or more there is
  // another one for urgent messages.
  UcxPeer(std::string name, ucp_worker_h worker, SendPool<UcxSend>& pool, std::size_t bulk_streams)
      : name_(std::move(name)), worker_(worker), pool_(pool), bulk_streams_(bulk_streams) {}
  UcxPeer(const UcxPeer&) = delete;
  UcxPeer& operator=(const UcxPeer&) = delete;
  // Requirement: nothing is in progress (BeginClose() was called and is_closed()).
  ~UcxPeer();

  const std::string& name() const noexcept { return name_; }

  // Begins to connect. Does not block; that nobody is there shows later, as loss.
  void Connect(absl::string_view worker_address) noexcept;

  // Each communicator's way in. Requirement for removal: nothing of it is waiting.
  UcxFlow* AddFlow(const LineShare& share) noexcept;
  void RemoveFlow(const UcxFlow* flow) noexcept { bulk_.RemoveFlow(flow); }
  bool is_shared() const noexcept { return bulk_.flow_count() > 1; }

  // As MessageWire::Send.
  bool Send(const void* wire, UcxFlow& flow, NodeIndex to, const MessageHeader& header,
            std::span<const std::byte> payload, SendPriority priority,
            SendObserver* observer) noexcept;
  // Drops what waits of one observer, or of one wire.
  void Withdraw(SendObserver* observer) noexcept;
  void WithdrawWire(const void* wire) noexcept;
  // Messages of `wire` that UCX has begun and not ended.
  std::size_t InProgress(const void* wire) const noexcept;

  // Gives up further streams that were refused. Not from inside ucp_worker_progress().
  void CloseRefusedStreams() noexcept;
  // Hands waiting messages to UCX; returns how many.
  std::size_t Advance() noexcept;
  // Advance() would do something now.
  bool CanAdvance() noexcept;

  // The connection broke, or Fail() was called.
  bool lost() const noexcept { return lost_status_ != UCS_OK; }
  std::string LossReason() const { return ucs_status_string(lost_status_); }
  void Fail(ucs_status_t status) noexcept;

  // Begins to push out what was sent. Progress the worker until is_flushed().
  void BeginFlush() noexcept;
  bool is_flushed() noexcept;

  // UCX's own handshakes are over.
  bool is_connected() const noexcept;

  // Closes the streams as they are; begun messages end soon. Does not wait. Not before a flush
  // that one wants to succeed: an orderly close of UCX 1.13 can't be given up once begun.
  void BeginClose() noexcept;
  // Nothing is open or in progress any more. Progress the worker until it is so.
  bool is_closed() noexcept;

  NeighbourLine Describe() const;

  // What became of the connections since the last call, as the end of a line of the log that begins
  // with "the line to".
  bool has_news() const noexcept { return !news_.empty(); }
  std::string TakeNews() noexcept { return std::exchange(news_, {}); }

 private:
  // Messages per stream that UCX has at a time: one being written, one to go on with at once.
  static constexpr std::uint32_t kPerStream = 2;
  // Of bulk, while others may want to go next.
  static constexpr std::uint32_t kPerSharedStream = 1;

  static void OnError(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static void OnSendDone(void* request, ucs_status_t status, void* send);

  // Opens the streams that are missing, also such as were refused before. Those that are not used
  // any more stay open: the next job that shares the line finds them.
  void AddMissingStreams() noexcept;
  void GiveUpFurtherStream(UcxStream& stream) noexcept;
  // Urgent messages have the first stream to themselves.
  bool urgent_are_apart() const noexcept { return is_shared() || bulk_streams_ > 1; }
  std::size_t first_bulk_stream() const noexcept { return urgent_are_apart() ? 1 : 0; }
  std::size_t streams_needed() const noexcept { return first_bulk_stream() + bulk_streams_; }
  // Requirement: it is one of those that are needed.
  bool IsUsable(std::size_t stream) const noexcept {
    return stream == 0 || (streams_[stream].is_open() && streams_[stream].is_connected());
  }
  std::size_t CountUsableBulkStreams() const noexcept;
  UcxStream* FindStream(SendPriority priority) noexcept;
  std::size_t AdvanceUrgent() noexcept;
  // Starts it on the stream, or lets it wait with the urgent ones. As Send().
  bool StartOrQueueUrgent(UcxSend& send) noexcept;
  // True: done already, or the peer was found lost.
  bool Start(UcxStream& stream, UcxSend& send) noexcept;
  template <typename Predicate>
  void DropWaiting(Predicate predicate) noexcept;

  const std::string name_;
  ucp_worker_h worker_;
  SendPool<UcxSend>& pool_;
  const std::size_t bulk_streams_;
  std::string worker_address_;
  std::deque<UcxStream> streams_;
  std::string news_;
  std::uint32_t next_stream_ = 0;
  SendList<UcxSend> urgent_;
  WeightedFairQueue<UcxSend> bulk_;
  std::vector<UcxSend*> in_progress_;
  ucs_status_t lost_status_ = UCS_OK;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_PEER_H_
