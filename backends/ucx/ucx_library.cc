#include "backends/ucx/ucx_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "backends/ucx/ucx_handles.h"

namespace ringd {
namespace {

// Every function of UCX's that is called from here.
#define RINGD_UCX_FUNCTIONS(X)      \
  X(ucp_am_recv_data_nbx)           \
  X(ucp_am_send_nbx)                \
  X(ucp_cleanup)                    \
  X(ucp_config_modify)              \
  X(ucp_config_read)                \
  X(ucp_config_release)             \
  X(ucp_ep_close_nbx)               \
  X(ucp_ep_create)                  \
  X(ucp_ep_flush_nbx)               \
  X(ucp_ep_print_info)              \
  X(ucp_init_version)               \
  X(ucp_request_check_status)       \
  X(ucp_request_free)               \
  X(ucp_worker_arm)                 \
  X(ucp_worker_create)              \
  X(ucp_worker_destroy)             \
  X(ucp_worker_get_address)         \
  X(ucp_worker_get_efd)             \
  X(ucp_worker_progress)            \
  X(ucp_worker_release_address)     \
  X(ucp_worker_set_am_recv_handler) \
  X(ucs_global_opts_set_value)      \
  X(ucs_log_push_handler)           \
  X(ucs_status_string)

struct UcxFunctions {
// NOLINTNEXTLINE(bugprone-macro-parentheses): it is declared.
#define X(name) decltype(&::name) name = nullptr;
  RINGD_UCX_FUNCTIONS(X)
#undef X
};

// Written once, by LoadUcx.
UcxFunctions g_ucx;

// Whether a page may become writable and executable, as that of a function that is to be changed
// must.
bool MayChangeCode() {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory =
      ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  const bool may = ::mprotect(memory, page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
  ::munmap(memory, page);
  return may;
}

absl::Status Load(absl::string_view transports) {
  // libucs reads it when it is loaded.
  if (IsTcpAlone(transports) || !MayChangeCode()) ::setenv("UCX_MEM_EVENTS", "no", /*replace=*/0);
  void* const library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("UCX can't be loaded (Debian's package libucx0): ", ::dlerror()));
  }
#define X(name)                                                                        \
  g_ucx.name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name));           \
  if (g_ucx.name == nullptr) {                                                         \
    return absl::FailedPreconditionError(absl::StrCat("UCX has no function ", #name)); \
  }
  RINGD_UCX_FUNCTIONS(X)
#undef X
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadUcx(absl::string_view transports) {
  static const absl::Status& loaded = *new absl::Status(Load(transports));
  return loaded;
}

}  // namespace ringd

// The functions under their own names, for UCX's headers and our calls.

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void* data_desc, void* buffer,
                                      size_t count, const ucp_request_param_t* param) {
  return ringd::g_ucx.ucp_am_recv_data_nbx(worker, data_desc, buffer, count, param);
}
ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void* header, size_t header_length,
                                 const void* buffer, size_t count,
                                 const ucp_request_param_t* param) {
  return ringd::g_ucx.ucp_am_send_nbx(ep, id, header, header_length, buffer, count, param);
}
void ucp_cleanup(ucp_context_h context) { ringd::g_ucx.ucp_cleanup(context); }
ucs_status_t ucp_config_modify(ucp_config_t* config, const char* name, const char* value) {
  return ringd::g_ucx.ucp_config_modify(config, name, value);
}
ucs_status_t ucp_config_read(const char* env_prefix, const char* filename, ucp_config_t** config) {
  return ringd::g_ucx.ucp_config_read(env_prefix, filename, config);
}
void ucp_config_release(ucp_config_t* config) { ringd::g_ucx.ucp_config_release(config); }
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t* param) {
  return ringd::g_ucx.ucp_ep_close_nbx(ep, param);
}
ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t* params, ucp_ep_h* ep) {
  return ringd::g_ucx.ucp_ep_create(worker, params, ep);
}
ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t* param) {
  return ringd::g_ucx.ucp_ep_flush_nbx(ep, param);
}
void ucp_ep_print_info(ucp_ep_h ep, FILE* stream) { ringd::g_ucx.ucp_ep_print_info(ep, stream); }
ucs_status_t ucp_init_version(unsigned api_major_version, unsigned api_minor_version,
                              const ucp_params_t* params, const ucp_config_t* config,
                              ucp_context_h* context) {
  return ringd::g_ucx.ucp_init_version(api_major_version, api_minor_version, params, config,
                                       context);
}
ucs_status_t ucp_request_check_status(void* request) {
  return ringd::g_ucx.ucp_request_check_status(request);
}
void ucp_request_free(void* request) { ringd::g_ucx.ucp_request_free(request); }
ucs_status_t ucp_worker_arm(ucp_worker_h worker) { return ringd::g_ucx.ucp_worker_arm(worker); }
ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t* params,
                               ucp_worker_h* worker) {
  return ringd::g_ucx.ucp_worker_create(context, params, worker);
}
void ucp_worker_destroy(ucp_worker_h worker) { ringd::g_ucx.ucp_worker_destroy(worker); }
ucs_status_t ucp_worker_get_address(ucp_worker_h worker, ucp_address_t** address,
                                    size_t* address_length) {
  return ringd::g_ucx.ucp_worker_get_address(worker, address, address_length);
}
ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int* fd) {
  return ringd::g_ucx.ucp_worker_get_efd(worker, fd);
}
unsigned ucp_worker_progress(ucp_worker_h worker) {
  return ringd::g_ucx.ucp_worker_progress(worker);
}
void ucp_worker_release_address(ucp_worker_h worker, ucp_address_t* address) {
  ringd::g_ucx.ucp_worker_release_address(worker, address);
}
ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker,
                                            const ucp_am_handler_param_t* param) {
  return ringd::g_ucx.ucp_worker_set_am_recv_handler(worker, param);
}
ucs_status_t ucs_global_opts_set_value(const char* name, const char* value) {
  return ringd::g_ucx.ucs_global_opts_set_value(name, value);
}
void ucs_log_push_handler(ucs_log_func_t handler) { ringd::g_ucx.ucs_log_push_handler(handler); }
const char* ucs_status_string(ucs_status_t status) {
  return ringd::g_ucx.ucs_status_string(status);
}
