// What the emulated driver knows of this process: contexts, streams, events, modules, memory.
//
// CUDA's functions take no handle of the driver, so there is one Process in the library. It is
// never destroyed: threads of streams run until the process ends.
#ifndef RINGD_TESTS_GPU_EMULATOR_CUDA_PROCESS_H_
#define RINGD_TESTS_GPU_EMULATOR_CUDA_PROCESS_H_

#include <cuda.h>
#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "proto/base/mutex.h"
#include "tests/gpu/emulator/cuda/device_memory.h"
#include "tests/gpu/emulator/cuda/emulator_api.h"
#include "tests/gpu/emulator/cuda/machine.h"
#include "tests/gpu/emulator/cuda/settings.h"
#include "tests/gpu/emulator/cuda/stream.h"

namespace ringd::emulator {

// A device's primary context; there are no others. The CUcontext handle is its address.
struct Context {
  int device = 0;
  int references = 0;
  unsigned peers = 0;  // a bit for each device whose memory this one may use
  std::shared_ptr<Stream> default_stream;
};

struct Event {
  int device = 0;
  unsigned flags = 0;
  EventCell* cell = nullptr;
  std::unique_ptr<EventCell> own_cell;  // of an event that stays in this process
  int shared_number = -1;
  bool is_imported = false;
  std::uint32_t generation = 0;
};

struct Function {
  const RingdEmulatorKernel* kernel = nullptr;
  int device = 0;
};

struct Module {
  int device = 0;
  std::string image;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

class Process {
 public:
  static Process& Get();

  // cuInit.
  CUresult Initialise();
  // Whether cuInit has succeeded, in this process: a forked child has to begin anew with exec.
  bool is_initialised() const;

  const Settings& settings() const { return settings_; }
  Machine& machine() { return machine_; }
  AddressSpace& memory() { return memory_; }

  // Null unless there is such a device.
  Context* context(int device);
  // Null unless `handle` is a context that lives.
  Context* Live(CUcontext handle);
  CUresult Retain(int device, CUcontext* handle);
  CUresult Release(int device);

  // The context that is current on this thread, dead or alive; null if there is none.
  static Context*& Current();

  CUstream AddStream(int device, unsigned flags);
  // The live stream behind a handle; for 0 and CU_STREAM_LEGACY the current context's default one.
  std::shared_ptr<Stream> FindStream(CUstream handle);
  CUresult RemoveStream(CUstream handle);
  // Enqueues behind what the default stream's rules put before it. Returns the ticket.
  std::uint64_t Enqueue(const std::shared_ptr<Stream>& stream, Work work);
  // Blocks until the device has nothing to do for this process.
  void WaitForDevice(int device);

  CUevent AddEvent(std::unique_ptr<Event> event);
  std::shared_ptr<Event> FindEvent(CUevent handle);
  CUresult RemoveEvent(CUevent handle);

  CUmemGenericAllocationHandle AddHandle(std::shared_ptr<Allocation> allocation);
  std::shared_ptr<Allocation> FindHandle(CUmemGenericAllocationHandle handle);
  bool RemoveHandle(CUmemGenericAllocationHandle handle);

  CUmodule AddModule(int device, std::string image);
  CUresult RemoveModule(CUmodule handle);
  // `is_new` becomes true if nobody has asked for it before.
  CUresult GetFunction(CUmodule handle, const std::string& name, CUfunction* function,
                       bool* is_new);
  // With lazy_loading: waits for the device, and meanwhile AwaitLoading keeps other threads.
  void Load(int device);
  // As a function that frees memory: waits for the device; with frees_hold_up the same.
  void WaitToFree(int device);
  void AwaitLoading();
  const Function* FindFunction(CUfunction handle);

  // The table of calls by name: see ringd_emulator_calls.
  void Count(const std::string& name);
  std::uint64_t CallsOf(const std::string& name);

 private:
  Process();
  const RingdEmulatorKernel* FindKernel(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndContext(Context* context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Settings settings_;
  Machine machine_;
  AddressSpace memory_;
  std::atomic<pid_t> initialised_pid_{0};

  Mutex mutex_;
  Context contexts_[kMaxDevices];
  std::map<CUstream, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t streams_made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<CUevent, std::shared_ptr<Event>> events_ ABSL_GUARDED_BY(mutex_);
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Allocation>> handles_
      ABSL_GUARDED_BY(mutex_);
  CUmemGenericAllocationHandle last_handle_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<CUmodule, std::unique_ptr<Module>> modules_ ABSL_GUARDED_BY(mutex_);
  std::atomic<pthread_t> loading_{};  // the thread that does, or frees; none: 0
  const RingdEmulatorKernel* kernels_ ABSL_GUARDED_BY(mutex_) = nullptr;

  Mutex calls_mutex_;
  std::map<std::string, std::uint64_t> calls_ ABSL_GUARDED_BY(calls_mutex_);
};

// What a call of CUDA needs, and what it is counted as.
enum Rule : unsigned {
  kAnyTime = 0,
  kInitialised = 1,
  kContext = 2 | kInitialised,
  kAllocates = 4,
  kSynchronises = 8,
};

// One call of a CUDA function: counts it and looks whether it is allowed now.
class Call {
 public:
  Call(const char* name, unsigned rules);
  // Why the function must not go on; CUDA_SUCCESS if it may.
  CUresult refused() const { return refused_; }
  Process& process() const { return process_; }
  // Of the current context, which lives if the rules ask for one.
  int device() const { return Process::Current()->device; }

 private:
  CUresult Check(unsigned rules) const;

  Process& process_;
  CUresult refused_;
};

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_CUDA_PROCESS_H_
