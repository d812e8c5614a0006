#include "backends/ucx/ucx_stream.h"

#include <utility>

namespace ringd {

ucs_status_t UcxStream::Open(ucp_worker_h worker, absl::string_view worker_address,
                             ucp_err_handler_cb_t on_error, void* argument) noexcept {
  connected_ = false;
  refusal_ = UCS_OK;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_error;
  params.err_handler.arg = argument;
  const ucs_status_t status = ucp_ep_create(worker, &params, &endpoint_);
  if (status != UCS_OK) endpoint_ = nullptr;
  return status;
}

void UcxStream::Greet() noexcept {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxStream::OnGreeted;
  param.user_data = this;
  // Without a header it is nobody's message.
  ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint_, kUcxMessageId, nullptr, 0, nullptr, 0, &param);
  if (request == nullptr) {
    NoteConnected();
  } else if (UCS_PTR_IS_ERR(request)) {
    Refuse(UCS_PTR_STATUS(request));
  } else {
    greeting_ = request;
  }
}

void UcxStream::OnGreeted(void* request, ucs_status_t status, void* self) {
  UcxStream& stream = *static_cast<UcxStream*>(self);
  ucp_request_free(request);
  stream.greeting_ = nullptr;
  if (status == UCS_OK) {
    stream.NoteConnected();
  } else if (!stream.is_refused()) {
    stream.Refuse(status);
  }
}

void UcxStream::BeginFlush() noexcept {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t param{};
  void* const request = ucp_ep_flush_nbx(endpoint_, &param);
  flushing_ = UCS_PTR_IS_PTR(request) ? request : nullptr;
}

void UcxStream::BeginClose() noexcept {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* const request = ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &param);
  closing_ = UCS_PTR_IS_PTR(request) ? request : nullptr;
}

bool UcxStream::Ended(void*& request) noexcept {
  if (request == nullptr) return true;
  if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
  ucp_request_free(std::exchange(request, nullptr));
  return true;
}

}  // namespace ringd
