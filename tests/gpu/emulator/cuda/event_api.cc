// CUDA's functions about events, within a process and between processes.
#include <cuda.h>

#include <cstring>
#include <memory>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::Call;
using ringd::emulator::Event;
using ringd::emulator::EventCell;
using ringd::emulator::kAllocates;
using ringd::emulator::kContext;
using ringd::emulator::kSynchronises;
using ringd::emulator::Process;
using ringd::emulator::Stream;

namespace {

constexpr int kPollMicroseconds = 20;
constexpr unsigned kKnownFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// What a CUipcEventHandle holds.
struct SharedEvent {
  std::uint64_t magic;
  std::int32_t number;
  std::uint32_t generation;
  std::int32_t device;
};
constexpr std::uint64_t kMagic = 0x72696e6765766e74;

// Whether an event's cell still is the event's: its owner may have destroyed it.
bool IsCurrent(const Event& event) {
  return event.shared_number < 0 ||
         (event.cell->generation == event.generation && event.cell->owner != 0);
}

bool HasEnded(const Event& event, std::uint64_t record) {
  return !IsCurrent(event) || event.cell->done.load(std::memory_order_acquire) >= record;
}

void NoteDone(EventCell* cell, std::uint64_t record) {
  std::uint64_t done = cell->done.load(std::memory_order_relaxed);
  // Release: pairs with HasEnded, also in other processes.
  while (done < record &&
         !cell->done.compare_exchange_weak(done, record, std::memory_order_acq_rel)) {
  }
}

}  // namespace

CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
  const Call call("cuEventCreate", kContext | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const bool is_shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (handle == nullptr || (flags & ~kKnownFlags) != 0 ||
      (is_shared && (flags & CU_EVENT_DISABLE_TIMING) == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto event = std::make_unique<Event>();
  event->device = call.device();
  event->flags = flags;
  if (is_shared) {
    event->shared_number = call.process().machine().TakeEvent();
    event->cell = call.process().machine().event(event->shared_number);
    if (event->cell == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    event->generation = event->cell->generation;
  } else {
    event->own_cell = std::make_unique<EventCell>();
    event->cell = event->own_cell.get();
  }
  *handle = call.process().AddEvent(std::move(event));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  const Call call("cuEventDestroy", kContext | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  return call.process().RemoveEvent(event);
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  const Call call("cuEventRecord", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const std::shared_ptr<Event> event = call.process().FindEvent(handle);
  const std::shared_ptr<Stream> stream = call.process().FindStream(stream_handle);
  if (event == nullptr || stream == nullptr || event->device != stream->device()) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const std::uint64_t record = ++event->cell->recorded;
  call.process().Enqueue(stream, [event, record](bool stopping) {
    if (!stopping && IsCurrent(*event)) NoteDone(event->cell, record);
    return 0;
  });
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle) {
  const Call call("cuEventQuery", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const std::shared_ptr<Event> event = call.process().FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return HasEnded(*event, event->cell->recorded) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  const Call call("cuEventSynchronize", kContext | kSynchronises);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const std::shared_ptr<Event> event = call.process().FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::uint64_t record = event->cell->recorded;
  while (!HasEnded(*event, record)) {
    const CUresult sticky = call.process().machine().sticky();
    if (sticky != CUDA_SUCCESS) return sticky;
    ringd::emulator::Nap();
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags) {
  const Call call("cuStreamWaitEvent", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const std::shared_ptr<Event> event = call.process().FindEvent(handle);
  const std::shared_ptr<Stream> stream = call.process().FindStream(stream_handle);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t record = event->cell->recorded;
  call.process().Enqueue(stream, [event, record](bool stopping) {
    return stopping || HasEnded(*event, record) ? 0 : kPollMicroseconds;
  });
  return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event_handle) {
  const Call call("cuIpcGetEventHandle", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const std::shared_ptr<Event> event = call.process().FindEvent(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (handle == nullptr || event->shared_number < 0) return CUDA_ERROR_INVALID_HANDLE;
  const SharedEvent shared{kMagic, event->shared_number, event->generation, event->device};
  static_assert(sizeof shared <= sizeof handle->reserved);
  std::memset(handle->reserved, 0, sizeof handle->reserved);
  std::memcpy(handle->reserved, &shared, sizeof shared);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* event_handle, CUipcEventHandle handle) {
  const Call call("cuIpcOpenEventHandle", kContext | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (event_handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SharedEvent shared{};
  std::memcpy(&shared, handle.reserved, sizeof shared);
  EventCell* const cell = call.process().machine().event(shared.number);
  if (shared.magic != kMagic || cell == nullptr || cell->owner == 0 ||
      cell->generation != shared.generation) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  auto event = std::make_unique<Event>();
  event->device = shared.device;
  event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  event->cell = cell;
  event->shared_number = shared.number;
  event->generation = shared.generation;
  event->is_imported = true;
  *event_handle = call.process().AddEvent(std::move(event));
  return CUDA_SUCCESS;
}
