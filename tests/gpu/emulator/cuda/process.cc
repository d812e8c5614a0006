#include "tests/gpu/emulator/cuda/process.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace ringd::emulator {
namespace {

constexpr int kPollMicroseconds = 20;

}  // namespace

Process& Process::Get() {
  static Process& process = *new Process;
  return process;
}

Process::Process() : settings_(ReadSettings()), machine_(settings_) {
  for (int device = 0; device < kMaxDevices; ++device) contexts_[device].device = device;
}

CUresult Process::Initialise() {
  const MutexLock lock(mutex_);
  const pid_t before = initialised_pid_.load();
  if (before == ::getpid()) return CUDA_SUCCESS;
  if (before != 0) return CUDA_ERROR_NOT_INITIALIZED;
  if (settings_.devices == 0) return CUDA_ERROR_NO_DEVICE;
  const CUresult joined = machine_.Join();
  if (joined == CUDA_SUCCESS) initialised_pid_ = ::getpid();
  return joined;
}

bool Process::is_initialised() const { return initialised_pid_.load() == ::getpid(); }

Context* Process::context(int device) {
  return device >= 0 && device < settings_.devices ? &contexts_[device] : nullptr;
}

Context*& Process::Current() {
  thread_local Context* current = nullptr;
  return current;
}

Context* Process::Live(CUcontext handle) {
  const MutexLock lock(mutex_);
  for (Context& context : contexts_) {
    if (reinterpret_cast<CUcontext>(&context) == handle && context.references > 0) return &context;
  }
  return nullptr;
}

CUresult Process::Retain(int device, CUcontext* handle) {
  Context* const wanted = context(device);
  if (wanted == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const MutexLock lock(mutex_);
  if (wanted->references++ == 0) {
    machine_.SetContext(device, true);
    wanted->default_stream =
        Stream::Create(machine_, settings_, device, /*is_blocking=*/true, ++streams_made_);
  }
  *handle = reinterpret_cast<CUcontext>(wanted);
  return CUDA_SUCCESS;
}

CUresult Process::Release(int device) {
  Context* const released = context(device);
  if (released == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  {
    const MutexLock lock(mutex_);
    if (released->references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--released->references > 0) return CUDA_SUCCESS;
    EndContext(released);
  }
  memory_.RemoveOfContext(device);
  return CUDA_SUCCESS;
}

void Process::EndContext(Context* context) {
  const int device = context->device;
  context->default_stream->Abandon();
  context->default_stream = nullptr;
  context->peers = 0;
  std::erase_if(streams_, [&](const auto& entry) {
    if (entry.second->device() != device) return false;
    entry.second->Abandon();
    return true;
  });
  std::erase_if(events_, [&](const auto& entry) { return entry.second->device == device; });
  std::erase_if(modules_, [&](const auto& entry) { return entry.second->device == device; });
  machine_.SetContext(device, false);
}

CUstream Process::AddStream(int device, unsigned flags) {
  const MutexLock lock(mutex_);
  const bool is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  auto stream = Stream::Create(machine_, settings_, device, is_blocking, ++streams_made_);
  const auto handle = reinterpret_cast<CUstream>(stream.get());
  streams_[handle] = std::move(stream);
  return handle;
}

std::shared_ptr<Stream> Process::FindStream(CUstream handle) {
  const MutexLock lock(mutex_);
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return Current()->default_stream;
  const auto found = streams_.find(handle);
  return found == streams_.end() ? nullptr : found->second;
}

CUresult Process::RemoveStream(CUstream handle) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(handle);
  if (found == streams_.end()) return CUDA_ERROR_INVALID_HANDLE;
  found->second->Close();
  streams_.erase(found);
  return CUDA_SUCCESS;
}

std::uint64_t Process::Enqueue(const std::shared_ptr<Stream>& stream, Work work) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Stream> legacy = contexts_[stream->device()].default_stream;
  std::vector<std::shared_ptr<Stream>> first;
  if (stream == legacy) {
    for (const auto& [handle, other] : streams_) {
      if (other->is_blocking() && other->device() == stream->device()) first.push_back(other);
    }
  } else if (stream->is_blocking() && legacy != nullptr) {
    first.push_back(legacy);
  }
  for (const std::shared_ptr<Stream>& other : first) {
    const std::uint64_t ticket = other->last_ticket();
    if (other->HasEnded(ticket)) continue;
    stream->Enqueue(
        [other, ticket](bool) { return other->HasEnded(ticket) ? 0 : kPollMicroseconds; });
  }
  return stream->Enqueue(std::move(work));
}

void Process::WaitForDevice(int device) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const MutexLock lock(mutex_);
    streams.push_back(contexts_[device].default_stream);
    for (const auto& [handle, stream] : streams_) {
      if (stream->device() == device) streams.push_back(stream);
    }
  }
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (stream != nullptr) stream->WaitFor(stream->last_ticket());
  }
}

CUevent Process::AddEvent(std::unique_ptr<Event> event) {
  const MutexLock lock(mutex_);
  const auto handle = reinterpret_cast<CUevent>(event.get());
  events_[handle] = std::move(event);
  return handle;
}

std::shared_ptr<Event> Process::FindEvent(CUevent handle) {
  const MutexLock lock(mutex_);
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : found->second;
}

CUresult Process::RemoveEvent(CUevent handle) {
  const MutexLock lock(mutex_);
  const auto found = events_.find(handle);
  if (found == events_.end()) return CUDA_ERROR_INVALID_HANDLE;
  const Event& event = *found->second;
  if (event.shared_number >= 0 && !event.is_imported) machine_.GiveEvent(event.shared_number);
  events_.erase(found);
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle Process::AddHandle(std::shared_ptr<Allocation> allocation) {
  const MutexLock lock(mutex_);
  handles_[++last_handle_] = std::move(allocation);
  return last_handle_;
}

std::shared_ptr<Allocation> Process::FindHandle(CUmemGenericAllocationHandle handle) {
  const MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : found->second;
}

bool Process::RemoveHandle(CUmemGenericAllocationHandle handle) {
  const MutexLock lock(mutex_);
  return handles_.erase(handle) == 1;
}

void Process::Count(const std::string& name) {
  const MutexLock lock(calls_mutex_);
  ++calls_[name];
}

std::uint64_t Process::CallsOf(const std::string& name) {
  const MutexLock lock(calls_mutex_);
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

Call::Call(const char* name, unsigned rules) : process_(Process::Get()), refused_(Check(rules)) {
  if (process_.settings().crash == name) ::raise(SIGSEGV);
  while (process_.settings().hang == name) ::pause();
  if ((rules & kContext) == kContext) process_.AwaitLoading();
  process_.Count(name);
  process_.Count("*");
  if ((rules & kAllocates) != 0) process_.Count("allocating");
  if ((rules & kSynchronises) != 0) process_.Count("synchronising");
}

CUresult Call::Check(unsigned rules) const {
  if (IsInHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  if ((rules & kInitialised) == 0) return CUDA_SUCCESS;
  if (!process_.is_initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult sticky = process_.machine().sticky();
  if (sticky != CUDA_SUCCESS) return sticky;
  if ((rules & kContext) != kContext) return CUDA_SUCCESS;
  Context* const current = Process::Current();
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const bool is_alive = process_.Live(reinterpret_cast<CUcontext>(current)) != nullptr;
  return is_alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace ringd::emulator
