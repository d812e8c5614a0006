// One connection to another ringd.
#ifndef RINGD_BACKENDS_UCX_UCX_STREAM_H_
#define RINGD_BACKENDS_UCX_UCX_STREAM_H_

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace ringd {

// The one active message id that all nodes use.
inline constexpr unsigned kUcxMessageId = 1;

// An endpoint of UCX, from its making to its close.
//
// Whether the other side is to be had over it UCX finds out when something is sent. The first
// stream to a peer carries messages at once, since without it there is nothing; a further one is
// *greeted*, sent an empty message that the other side drops, and carries messages when that has
// left. So a connection that is refused, or of which nothing is heard, holds no message up.
//
// Thread safety: the progress thread only. UCX calls back from inside ucp_worker_progress().
// Ownership: of the endpoint. Must stay where it is until has_ended().
class UcxStream {
 public:
  explicit UcxStream(std::uint32_t index) : index_(index) {}
  UcxStream(const UcxStream&) = delete;
  UcxStream& operator=(const UcxStream&) = delete;

  std::uint32_t index() const noexcept { return index_; }

  // Makes the endpoint; `on_error` may be called with `argument` until has_ended(). Requirement:
  // none is open, and has_ended().
  ucs_status_t Open(ucp_worker_h worker, absl::string_view worker_address,
                    ucp_err_handler_cb_t on_error, void* argument) noexcept;
  void Greet() noexcept;

  ucp_ep_h endpoint() const noexcept { return endpoint_; }
  bool is_open() const noexcept { return endpoint_ != nullptr; }
  // Something was sent, so UCX's own handshake is over.
  bool is_connected() const noexcept { return connected_; }
  void NoteConnected() noexcept { connected_ = true; }

  // It came to an end before anything was sent.
  void Refuse(ucs_status_t why) noexcept { refusal_ = why == UCS_OK ? UCS_ERR_REJECTED : why; }
  bool is_refused() const noexcept { return refusal_ != UCS_OK; }
  ucs_status_t refusal() const noexcept { return refusal_; }

  // Begins to push out what was sent.
  void BeginFlush() noexcept;
  bool is_flushed() noexcept { return greeting_ == nullptr && Ended(flushing_); }
  // Closes the endpoint as it is; begun messages end soon. Does not wait.
  void BeginClose() noexcept;
  // Nothing is open, and none of UCX's requests refers to it, but for messages.
  bool has_ended() noexcept {
    return endpoint_ == nullptr && greeting_ == nullptr && Ended(flushing_) && Ended(closing_);
  }

  std::uint32_t in_progress = 0;  // messages that UCX has not ended

 private:
  static void OnGreeted(void* request, ucs_status_t status, void* self);
  // Frees the request if it has.
  static bool Ended(void*& request) noexcept;

  const std::uint32_t index_;
  ucp_ep_h endpoint_ = nullptr;
  bool connected_ = false;
  ucs_status_t refusal_ = UCS_OK;
  // Requests.
  void* greeting_ = nullptr;
  void* flushing_ = nullptr;
  void* closing_ = nullptr;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_STREAM_H_
