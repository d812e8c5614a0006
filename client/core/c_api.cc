// The C interface: checks pointers, keeps exceptions in, turns absl::Status into codes and words.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/core/api_failures.h"
#include "client/core/attach/library_version.h"
#include "client/core/caller_structure.h"
#include "client/core/context.h"
#include "client/core/options.h"
#include "client/ringd.h"

// What the opaque pointer of ringd.h points to.
struct ringd_context {
  std::unique_ptr<ringd::client::Context> impl;
};

namespace ringd::client {
namespace {

// As Guarded, for a function of `context`.
template <typename Body>
ringd_status GuardedUse(ringd_context* context, Body body) noexcept {
  if (context == nullptr) return ReportInvalid("context is NULL");
  return Guarded([&] {
    if (context->impl->InForkedChild()) {
      return absl::FailedPreconditionError(
          "this process was forked from the one that opened the context and must not use it; start "
          "processes that need ringd by spawning (exec), or fork before opening");
    }
    return body(*context->impl);
  });
}

template <std::size_t kSize>
void CopyText(char (&target)[kSize], const std::string& text) noexcept {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

ringd_place PlaceOf(Context& context) noexcept {
  ringd_place place{};
  place.rank = context.places().rank;
  place.size = context.places().size;
  place.local_rank = context.places().local_rank;
  place.local_size = context.places().local_size;
  place.cross_rank = context.joined().cross_rank;
  place.cross_size = context.joined().cross_size;
  place.node_count = context.joined().node_count;
  place.node_index = context.joined().node_index;
  place.homogeneous = context.joined().homogeneous ? 1 : 0;
  place.generation = context.joined().generation;
  CopyText(place.node_name, context.joined().node_name);
  CopyText(place.daemon_version, context.joined().daemon_version);
  return place;
}

}  // namespace
}  // namespace ringd::client

using ringd::client::Context;
using ringd::client::Guarded;
using ringd::client::GuardedUse;
using ringd::client::ReportInvalid;
using ringd::client::WhenFull;

extern "C" {

uint32_t ringd_api_version(void) { return RINGD_API_VERSION; }

const char* ringd_version(void) { return ringd::client::kLibraryVersion; }

const char* ringd_last_error(void) { return ringd::client::LastErrorText(); }

const char* ringd_status_name(ringd_status status) {
  switch (status) {
    case RINGD_OK:
      return "RINGD_OK";
    case RINGD_CANCELLED:
      return "RINGD_CANCELLED";
    case RINGD_INVALID_ARGUMENT:
      return "RINGD_INVALID_ARGUMENT";
    case RINGD_DEADLINE_EXCEEDED:
      return "RINGD_DEADLINE_EXCEEDED";
    case RINGD_NOT_FOUND:
      return "RINGD_NOT_FOUND";
    case RINGD_ALREADY_EXISTS:
      return "RINGD_ALREADY_EXISTS";
    case RINGD_PERMISSION_DENIED:
      return "RINGD_PERMISSION_DENIED";
    case RINGD_RESOURCE_EXHAUSTED:
      return "RINGD_RESOURCE_EXHAUSTED";
    case RINGD_FAILED_PRECONDITION:
      return "RINGD_FAILED_PRECONDITION";
    case RINGD_ABORTED:
      return "RINGD_ABORTED";
    case RINGD_INTERNAL:
      return "RINGD_INTERNAL";
    case RINGD_UNAVAILABLE:
      return "RINGD_UNAVAILABLE";
    case RINGD_UNAUTHENTICATED:
      return "RINGD_UNAUTHENTICATED";
    default:
      return "RINGD_UNKNOWN";
  }
}

ringd_status ringd_open(const ringd_options* options, ringd_context** context) {
  if (context == nullptr) return ReportInvalid("context is NULL");
  return Guarded([&]() -> absl::Status {
    auto resolved = ringd::client::ResolveOptions(
        options, [](const char* name) -> const char* { return std::getenv(name); });
    if (!resolved.ok()) return resolved.status();
    auto holder = std::make_unique<ringd_context>();
    absl::StatusOr<std::unique_ptr<Context>> opened = Context::Open(*resolved);
    if (!opened.ok()) return opened.status();
    holder->impl = *std::move(opened);
    *context = holder.release();
    return absl::OkStatus();
  });
}

void ringd_close(ringd_context* context) {
  // In a forked child the threads and locks behind the context are the parent's: its copy is left
  // alone.
  if (context == nullptr || context->impl->InForkedChild()) return;
  Guarded([&] {
    delete context;
    return absl::OkStatus();
  });
}

ringd_status ringd_leave(ringd_context* context) {
  return GuardedUse(context, [](Context& c) {
    c.EndPart(Context::Farewell::kLeave);
    return absl::OkStatus();
  });
}

ringd_status ringd_abandon(ringd_context* context) {
  return ringd_abandon_because(context, nullptr);
}

ringd_status ringd_abandon_because(ringd_context* context, const char* text) {
  return GuardedUse(context, [text](Context& c) {
    c.EndPart(Context::Farewell::kAbandon, absl::NullSafeStringView(text));
    return absl::OkStatus();
  });
}

ringd_status ringd_get_place(ringd_context* context, ringd_place* place) {
  if (place == nullptr) return ReportInvalid("place is NULL");
  return GuardedUse(context, [&](Context& c) -> absl::Status {
    const std::size_t given_bytes = place->struct_size;
    absl::Status status = ringd::client::CheckStructureBytes<ringd_place>(given_bytes);
    if (status.ok()) ringd::client::ToCaller(ringd::client::PlaceOf(c), place, given_bytes);
    return status;
  });
}

ringd_status ringd_arena_alloc(ringd_context* context, size_t bytes, void** address) {
  if (address == nullptr) return ReportInvalid("address is NULL");
  return GuardedUse(context, [&](Context& c) -> absl::Status {
    const absl::StatusOr<void*> allocated = c.arena().AllocateZeroed(bytes);
    if (!allocated.ok()) return allocated.status();
    *address = *allocated;
    return absl::OkStatus();
  });
}

void ringd_arena_free(ringd_context* context, void* address) {
  if (address == nullptr) return;
  GuardedUse(context, [&](Context& c) -> absl::Status {
    if (!c.arena().Free(address)) {
      return absl::InvalidArgumentError("ringd_arena_free: this address was not allocated");
    }
    return absl::OkStatus();
  });
}

int32_t ringd_arena_contains(ringd_context* context, const void* address, size_t bytes) {
  if (context == nullptr) return 0;
  return context->impl->arena().Locate(address, bytes) == ringd::client::Arena::Position::kInside
             ? 1
             : 0;
}

ringd_status ringd_communicator_create(ringd_context* context,
                                       const ringd_communicator_options* options,
                                       ringd_communicator* communicator) {
  if (options == nullptr || communicator == nullptr) {
    return ReportInvalid("options or communicator is NULL");
  }
  return GuardedUse(context, [&](Context& c) -> absl::Status {
    const std::size_t given_bytes = options->struct_size;
    absl::Status status =
        ringd::client::CheckStructureBytes<ringd_communicator_options>(given_bytes);
    if (!status.ok()) return status;
    const absl::StatusOr<ringd_communicator> created = c.CreateCommunicator(
        ringd::client::FromCaller<ringd_communicator_options>(options, given_bytes));
    if (created.ok()) *communicator = *created;
    return created.status();
  });
}

ringd_status ringd_communicator_destroy(ringd_context* context, ringd_communicator communicator) {
  return GuardedUse(context, [&](Context& c) { return c.DestroyCommunicator(communicator); });
}

ringd_status ringd_get_communicator_place(ringd_context* context, ringd_communicator communicator,
                                          ringd_communicator_place* place) {
  if (place == nullptr) return ReportInvalid("place is NULL");
  return GuardedUse(context, [&](Context& c) -> absl::Status {
    const std::size_t given_bytes = place->struct_size;
    absl::Status status = ringd::client::CheckStructureBytes<ringd_communicator_place>(given_bytes);
    if (!status.ok()) return status;
    const absl::StatusOr<ringd_communicator_place> found = c.PlaceIn(communicator);
    if (found.ok()) ringd::client::ToCaller(*found, place, given_bytes);
    return found.status();
  });
}

ringd_status ringd_register(ringd_context* context, const ringd_tensor* tensors, size_t count,
                            ringd_registration* registrations) {
  if (count > 0 && (tensors == nullptr || registrations == nullptr)) {
    return ReportInvalid("tensors or registrations is NULL");
  }
  return GuardedUse(context, [&](Context& c) { return c.Register(tensors, count, registrations); });
}

ringd_status ringd_unregister(ringd_context* context, const ringd_registration* registrations,
                              size_t count) {
  if (count > 0 && registrations == nullptr) return ReportInvalid("registrations is NULL");
  return GuardedUse(context, [&](Context& c) { return c.Unregister({registrations, count}); });
}

ringd_status ringd_submit(ringd_context* context, ringd_registration registration,
                          const void* source, void* destination, ringd_operation* operation) {
  if (operation == nullptr) return ReportInvalid("operation is NULL");
  return GuardedUse(context, [&](Context& c) {
    return c.Submit(registration, source, destination, WhenFull::kWait, operation);
  });
}

ringd_status ringd_try_submit(ringd_context* context, ringd_registration registration,
                              const void* source, void* destination, ringd_operation* operation) {
  if (operation == nullptr) return ReportInvalid("operation is NULL");
  return GuardedUse(context, [&](Context& c) {
    return c.Submit(registration, source, destination, WhenFull::kFail, operation);
  });
}

ringd_status ringd_submit_in_order(ringd_context* context, ringd_communicator communicator,
                                   const ringd_collective* collective, const void* source,
                                   void* destination, ringd_operation* operation) {
  if (collective == nullptr || operation == nullptr) {
    return ReportInvalid("collective or operation is NULL");
  }
  return GuardedUse(context, [&](Context& c) -> absl::Status {
    const std::size_t given_bytes = collective->struct_size;
    absl::Status status = ringd::client::CheckStructureBytes<ringd_collective>(given_bytes);
    if (!status.ok()) return status;
    return c.SubmitInOrder(communicator,
                           ringd::client::FromCaller<ringd_collective>(collective, given_bytes),
                           source, destination, operation);
  });
}

ringd_status ringd_submit_awaited(ringd_context* context, ringd_registration registration,
                                  const void* source, void* destination,
                                  ringd_operation* operation) {
  if (operation == nullptr) return ReportInvalid("operation is NULL");
  return GuardedUse(context, [&](Context& c) {
    return c.SubmitAwaited(registration, source, destination, operation);
  });
}

ringd_status ringd_test(ringd_context* context, ringd_operation operation, int32_t* done) {
  if (done == nullptr) return ReportInvalid("done is NULL");
  return GuardedUse(context, [&](Context& c) {
    bool ended = false;
    absl::Status status = c.Test(operation, ended);
    if (status.ok()) *done = ended ? 1 : 0;
    return status;
  });
}

ringd_status ringd_wait(ringd_context* context, ringd_operation operation, int64_t timeout_ms) {
  return GuardedUse(context, [&](Context& c) { return c.Wait(operation, timeout_ms); });
}

ringd_status ringd_wait_all(ringd_context* context, ringd_operation* operations, size_t count,
                            int64_t timeout_ms) {
  if (operations == nullptr && count != 0) return ReportInvalid("operations is NULL");
  return GuardedUse(context, [&](Context& c) {
    return c.WaitAll({operations, count}, timeout_ms);
  });
}

ringd_status ringd_device_open(ringd_context* context, const ringd_device_options* options) {
  if (options == nullptr) return ReportInvalid("options is NULL");
  return GuardedUse(context, [&](Context& c) -> absl::Status {
    const std::size_t given_bytes = options->struct_size;
    absl::Status status = ringd::client::CheckStructureBytes<ringd_device_options>(given_bytes);
    if (!status.ok()) return status;
    return c.OpenDevice(ringd::client::FromCaller<ringd_device_options>(options, given_bytes));
  });
}

ringd_status ringd_device_alloc(ringd_context* context, size_t bytes, void** address) {
  if (address == nullptr) return ReportInvalid("address is NULL");
  return GuardedUse(context, [&](Context& c) -> absl::Status {
    const absl::StatusOr<void*> allocated = c.DeviceAllocate(bytes);
    if (allocated.ok()) *address = *allocated;
    return allocated.status();
  });
}

void ringd_device_free(ringd_context* context, void* address) {
  if (address == nullptr) return;
  GuardedUse(context, [&](Context& c) { return c.DeviceFree(address); });
}

ringd_status ringd_submit_on_stream(ringd_context* context, ringd_registration registration,
                                    const void* source, void* destination, void* stream,
                                    ringd_operation* operation) {
  if (operation == nullptr) return ReportInvalid("operation is NULL");
  return GuardedUse(context, [&](Context& c) {
    return c.SubmitOnStream(registration, source, destination, stream, operation);
  });
}

ringd_status ringd_stream_wait(ringd_context* context, ringd_operation operation, void* stream) {
  return GuardedUse(context, [&](Context& c) { return c.StreamWait(operation, stream); });
}

ringd_status ringd_ping(ringd_context* context, int64_t timeout_ms) {
  return GuardedUse(context, [&](Context& c) { return c.Ping(timeout_ms); });
}

}  // extern "C"
