#include "tests/gpu/emulator/cuda/emulated_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/unix_socket.h"

namespace ringd::emulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kWait{30};
constexpr seconds kLongestLife{90};
constexpr char kPtx[] = ".version 8.0\n.target sm_80\n.visible .entry ";

template <typename Function>
Function Find(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

bool SendWord(int channel, std::uint64_t word, int descriptor) {
  const std::span<const int> attached(&descriptor, descriptor < 0 ? 0 : 1);
  const auto bytes = std::as_bytes(std::span(&word, 1));
  return SendWithFds(channel, bytes, attached, Clock::now() + kWait).ok();
}

bool ReceiveWord(int channel, std::uint64_t* word, UniqueFd* descriptor) {
  auto received =
      ReceiveWithFds(channel, std::as_writable_bytes(std::span(word, 1)), Clock::now() + kWait);
  if (!received.ok()) return false;
  if (descriptor != nullptr && !received->empty()) *descriptor = std::move(received->front());
  return true;
}

}  // namespace

Child::Child(int report, int channel) : report_(report), channel_(channel) {
  auto opened = CudaDriver::Open(kLibrary);
  if (!opened.ok()) Fail(std::string(opened.status().message()));
  cuda_ = *std::move(opened);
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  emulator_.alias = Find<decltype(emulator_.alias)>(library, "ringd_emulator_alias");
  emulator_.enqueue = Find<decltype(emulator_.enqueue)>(library, "ringd_emulator_enqueue");
  emulator_.calls = Find<decltype(emulator_.calls)>(library, "ringd_emulator_calls");
  emulator_.stream_device =
      Find<decltype(emulator_.stream_device)>(library, "ringd_emulator_stream_device");
  emulator_.fail_device =
      Find<decltype(emulator_.fail_device)>(library, "ringd_emulator_fail_device");
}

void Child::Fail(const std::string& what) const {
  const ssize_t written = ::write(report_, what.data(), what.size());
  ::_exit(written == static_cast<ssize_t>(what.size()) ? 1 : 2);
}

void Child::Check(bool holds, const char* text, const char* file, int line) const {
  if (!holds) Fail(absl::StrCat(file, ":", line, ": ", text));
}

void Child::CheckResult(CUresult expected, CUresult found, const char* text, const char* file,
                        int line) const {
  if (found == expected) return;
  Fail(absl::StrCat(file, ":", line, ": ", text, ": ", CudaStatus(*cuda_, "", found).ToString(),
                    " in place of ", CudaStatus(*cuda_, "", expected).ToString()));
}

CUcontext Child::UseDevice(int device) const {
  const Child& child = *this;
  CUcontext context = nullptr;
  CHILD_OK(cuda().cuInit(0));
  CHILD_OK(cuda().cuDevicePrimaryCtxRetain(&context, device));
  CHILD_OK(cuda().cuCtxSetCurrent(context));
  return context;
}

CUstream Child::NewStream() const {
  const Child& child = *this;
  CUstream stream = nullptr;
  CHILD_OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUdeviceptr Child::NewMemory(std::size_t bytes) const {
  const Child& child = *this;
  CUdeviceptr memory = 0;
  CHILD_OK(cuda().cuMemAlloc(&memory, bytes));
  std::memset(emulator().alias(memory, bytes), 0, bytes);
  return memory;
}

CUdeviceptr Child::MapMemory(std::size_t bytes, CUmemGenericAllocationHandle* handle,
                             int device) const {
  const Child& child = *this;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CHILD_OK(cuda().cuMemCreate(handle, bytes, &properties, 0));
  const CUdeviceptr memory = MapHandle(*handle, bytes, device);
  std::memset(emulator().alias(memory, bytes), 0, bytes);
  return memory;
}

CUdeviceptr Child::MapHandle(CUmemGenericAllocationHandle handle, std::size_t bytes,
                             int device) const {
  const Child& child = *this;
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr memory = 0;
  CHILD_OK(cuda().cuMemAddressReserve(&memory, bytes, 0, 0, 0));
  CHILD_OK(cuda().cuMemMap(memory, bytes, 0, handle, 0));
  CHILD_OK(cuda().cuMemSetAccess(memory, bytes, &access, 1));
  return memory;
}

CUfunction Child::LoadKernel(const std::string& name) const {
  const Child& child = *this;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CHILD_OK(cuda().cuModuleLoadData(&module, (kPtx + name + "()").c_str()));
  CHILD_OK(cuda().cuModuleGetFunction(&function, module, name.c_str()));
  return function;
}

void Child::WaitUntil(const std::function<bool()>& holds, const char* what) const {
  const Clock::time_point deadline = Clock::now() + kWait;
  while (!holds()) {
    if (Clock::now() > deadline) Fail(absl::StrCat("waited in vain for ", what));
    std::this_thread::sleep_for(milliseconds(1));
  }
}

bool Child::IsDone(CUstream stream) const {
  return cuda().cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
}

std::uint64_t Child::Read(CUdeviceptr pointer) const {
  std::uint64_t value = 0;
  const void* const alias = emulator().alias(pointer, sizeof value);
  if (alias == nullptr) Fail("a pointer to read from is wrong");
  std::memcpy(&value, alias, sizeof value);
  return value;
}

void Child::Send(std::uint64_t word, int descriptor) const {
  if (!SendWord(channel_, word, descriptor)) Fail("the test does not listen");
}

std::uint64_t Child::Receive(UniqueFd* descriptor) const {
  std::uint64_t word = 0;
  if (!ReceiveWord(channel_, &word, descriptor)) Fail("the test said nothing");
  return word;
}

EmulatedProcess::EmulatedProcess(const Variables& settings, const Body& body) {
  // The child would have the parent's settings, and CUDA does not survive a fork.
  if (::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD) != nullptr) {
    std::fputs("EmulatedProcess: the test itself has opened the emulated driver\n", stderr);
    std::abort();
  }
  auto channel = UnixSocketPair();
  int report[2];
  if (!channel.ok() || ::pipe2(report, O_CLOEXEC) != 0) std::abort();
  pid_ = ::fork();
  if (pid_ < 0) std::abort();
  if (pid_ > 0) {
    ::close(report[1]);
    report_.Reset(report[0]);
    channel_ = std::move(channel->first);
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Catch2 would take a fatal signal for one of the test's.
  for (const int fatal : {SIGSEGV, SIGBUS, SIGABRT}) ::signal(fatal, SIG_DFL);
  channel->first.Reset();
  ::setenv("RINGD_EMULATOR_CUDA_KERNELS", kKernels, 1);
  for (const auto& [name, value] : settings) {
    ::setenv(absl::StrCat("RINGD_EMULATOR_CUDA_", name).c_str(), value.c_str(), 1);
  }
  body(Child(report[1], channel->second.get()));
  ::_exit(0);
}

EmulatedProcess::~EmulatedProcess() {
  if (pid_ > 0) {
    Kill();
    ::waitpid(pid_, nullptr, 0);
  }
}

void EmulatedProcess::Kill() { ::kill(pid_, SIGKILL); }

std::string EmulatedProcess::Join() {
  const Clock::time_point deadline = Clock::now() + kLongestLife;
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) return "it did not end within 90 s";
    std::this_thread::sleep_for(milliseconds(2));
  }
  pid_ = -1;
  char text[2000];
  const ssize_t length = ::read(report_.get(), text, sizeof text);
  if (WIFSIGNALED(status)) return absl::StrCat("killed by signal ", WTERMSIG(status));
  if (length > 0) return std::string(text, static_cast<std::size_t>(length));
  return status == 0 ? "" : absl::StrCat("exit code ", WEXITSTATUS(status));
}

void EmulatedProcess::Send(std::uint64_t word, int descriptor) {
  SendWord(channel_.get(), word, descriptor);
}

std::uint64_t EmulatedProcess::Receive(UniqueFd* descriptor) {
  std::uint64_t word = 0;
  ReceiveWord(channel_.get(), &word, descriptor);
  return word;
}

std::string RunEmulated(const Variables& settings, const Body& body) {
  EmulatedProcess process(settings, body);
  return process.Join();
}

}  // namespace ringd::emulator
