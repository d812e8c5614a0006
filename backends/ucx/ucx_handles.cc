#include "backends/ucx/ucx_handles.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "backends/collectives/message.h"
#include "backends/ucx/ucx_library.h"
#include "backends/ucx/ucx_log.h"

namespace ringd {
namespace {

struct UcpConfigReleaser {
  void operator()(ucp_config_t* config) const noexcept { ucp_config_release(config); }
};
using UcpConfig = std::unique_ptr<ucp_config_t, UcpConfigReleaser>;

// Room for a whole message with UCX's own headers in one TCP segment.
constexpr std::size_t kSegmentBytes = kMaxPayloadBytes + 1024;

std::vector<std::pair<const char*, std::string>> Settings(const TransportOptions& options) {
  std::vector<std::pair<const char*, std::string>> settings = {
      {"TLS", options.transports},
      {"NET_DEVICES", options.interfaces.empty() ? "all" : absl::StrJoin(options.interfaces, ",")},
  };
  if (absl::StrContains(options.transports, "tcp") || options.transports == "all") {
    // The transport's own settings are named without its prefix here. A message that fits into
    // one segment is handed to us where the socket's bytes were received, without another copy.
    settings.emplace_back("TX_SEG_SIZE", absl::StrCat(kSegmentBytes));
    settings.emplace_back("RX_SEG_SIZE", absl::StrCat(kSegmentBytes));
    // Connecting to a host that is down must not stop this thread.
    settings.emplace_back("CONN_NB", "y");
  }
  // Over TCP a rendezvous is a round trip that buys nothing; RDMA and shared memory choose
  // themselves.
  if (IsTcpAlone(options.transports)) {
    settings.emplace_back("RNDV_THRESH", "inf");
  } else {
    // Endpoints are to tell that their peer is gone. For that UCX 1.13 leaves shared memory out,
    // unless it may ask the kernel whether the peer's process lives.
    settings.emplace_back("MM_ERROR_HANDLING", "y");
  }
  return settings;
}

}  // namespace

absl::Status UcxError(absl::string_view what, ucs_status_t status) {
  const std::string text = absl::StrCat(what, ": ", ucs_status_string(status));
  switch (status) {
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return absl::InvalidArgumentError(text);
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_EXCEEDS_LIMIT:
      return absl::ResourceExhaustedError(text);
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_REJECTED:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:
      return absl::UnavailableError(text);
    default:
      return absl::InternalError(text);
  }
}

bool IsTcpAlone(absl::string_view transports) {
  for (absl::string_view name : absl::StrSplit(transports, ',')) {
    if (name != "tcp" && name != "self") return false;
  }
  return true;
}

absl::StatusOr<UcpContext> CreateUcpContext(const TransportOptions& options) {
  if (absl::Status status = LoadUcx(options.transports); !status.ok()) return status;
  RouteUcxLog(options);
  ucp_config_t* raw_config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw_config);
  if (status != UCS_OK) return UcxError("reading UCX's configuration", status);
  const UcpConfig config(raw_config);
  for (const auto& [name, value] : Settings(options)) {
    status = ucp_config_modify(config.get(), name, value.c_str());
    if (status != UCS_OK) return UcxError(absl::StrCat("setting UCX's ", name, "=", value), status);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "ringd";
  ucp_context_h context = nullptr;
  status = ucp_init(&params, config.get(), &context);
  if (status != UCS_OK) {
    return absl::InvalidArgumentError(absl::StrCat(
        "UCX finds no way to send: transports \"", options.transports, "\" on interfaces \"",
        absl::StrJoin(options.interfaces, ","), "\": ", ucs_status_string(status)));
  }
  return UcpContext(context);
}

absl::StatusOr<UcpWorker> CreateUcpWorker(ucp_context_h context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  const ucs_status_t status = ucp_worker_create(context, &params, &worker);
  if (status != UCS_OK) return UcxError("creating a UCX worker", status);
  return UcpWorker(worker);
}

absl::StatusOr<std::string> UcpWorkerAddress(ucp_worker_h worker) {
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  const ucs_status_t status = ucp_worker_get_address(worker, &address, &length);
  if (status != UCS_OK) return UcxError("asking UCX for this node's address", status);
  std::string bytes(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker, address);
  return bytes;
}

std::string DescribeUcpEndpoint(ucp_ep_h endpoint) {
  // UCX 1.13 tells only people: lines such as "#   lane[0]:  1:tcp/lo.0 md[1] -> ... am am_bw#0".
  char* text = nullptr;
  std::size_t length = 0;
  std::FILE* const stream = open_memstream(&text, &length);
  if (stream == nullptr) return "";
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  std::vector<std::string> names;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text, length), '\n')) {
    if (!absl::StrContains(line, "lane[") || absl::StrContains(line, "keepalive only")) continue;
    for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      const std::size_t colon = word.find(':');
      if (word.find('/') == absl::string_view::npos || colon == absl::string_view::npos) continue;
      // "1:tcp/lo.0": the number of the interface, its name, and the path on it.
      absl::string_view name = word.substr(colon + 1);
      name = name.substr(0, name.rfind('.'));
      if (names.empty() || names.back() != name) names.emplace_back(name);
      break;
    }
  }
  std::free(text);
  return absl::StrJoin(names, ", ");
}

}  // namespace ringd
