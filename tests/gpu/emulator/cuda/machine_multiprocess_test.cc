// Rules between processes on one GPU. README.md names the documents.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/emulator/cuda/emulated_process.h"
#include "tests/gpu/emulator/cuda/machine_file.h"

namespace ringd::emulator {
namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;

TEST_CASE("Emulated machine: memory passes between processes and orders their streams") {
  const MachineFile machine;
  EmulatedProcess owner(machine.With(), [](const Child& child) {
    child.UseDevice();
    const CUstream stream = child.NewStream();
    CUmemGenericAllocationHandle handle = 0;
    const CUdeviceptr memory = child.MapMemory(kGranule, &handle);
    int descriptor = -1;
    CHILD_OK(child.cuda().cuMemExportToShareableHandle(
        &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    child.Send(1, descriptor);
    CHILD_OK(child.cuda().cuMemsetD8Async(memory + 64, 7, 64, stream));
    CHILD_OK(child.cuda().cuStreamWriteValue64(stream, memory, 1, 0));
    CHILD_OK(child.cuda().cuStreamWaitValue64(stream, memory + 8, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHILD_OK(child.cuda().cuStreamSynchronize(stream));
    CHILD_CHECK(child.Read(memory + 128) == 0x0707070707070707);
  });
  EmulatedProcess user(machine.With(), [](const Child& child) {
    child.UseDevice();
    const CUstream stream = child.NewStream();
    UniqueFd descriptor;
    child.Receive(&descriptor);
    CUmemGenericAllocationHandle handle = 0;
    CHILD_OK(child.cuda().cuMemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get())),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    const CUdeviceptr memory = child.MapHandle(handle, kGranule);
    CHILD_OK(child.cuda().cuStreamWaitValue64(stream, memory, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHILD_OK(child.cuda().cuMemcpyDtoDAsync(memory + 128, memory + 64, 64, stream));
    CHILD_OK(child.cuda().cuStreamWriteValue64(stream, memory + 8, 1, 0));
    CHILD_OK(child.cuda().cuStreamSynchronize(stream));
  });
  UniqueFd descriptor;
  CHECK(owner.Receive(&descriptor) == 1);
  user.Send(1, descriptor.get());
  CHECK(owner.Join() == "");
  CHECK(user.Join() == "");
}

TEST_CASE("Emulated machine: a GPU's memory is one for all, and a killed process's is given back") {
  const MachineFile machine;
  const Variables settings = machine.With({{"MEMORY_MIB", "8"}});
  EmulatedProcess first(settings, [](const Child& child) {
    child.UseDevice();
    child.NewMemory(3 * kGranule);
    child.Send(1);
    child.Receive();
  });
  CHECK(first.Receive() == 1);
  EmulatedProcess second(settings, [](const Child& child) {
    child.UseDevice();
    CUdeviceptr memory = 0;
    CHILD_CUDA(CUDA_ERROR_OUT_OF_MEMORY, child.cuda().cuMemAlloc(&memory, 2 * kGranule));
    child.Send(2);
    child.Receive();
    CHILD_OK(child.cuda().cuMemAlloc(&memory, 4 * kGranule));
  });
  CHECK(second.Receive() == 2);
  first.Kill();
  CHECK(first.Join() == "killed by signal 9");
  second.Send(1);
  CHECK(second.Join() == "");
}

TEST_CASE("Emulated machine: an event passes between processes") {
  const MachineFile machine;
  const auto receive_handle = [](const Child& child) {
    CUipcEventHandle handle{};
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t word = child.Receive();
      std::memcpy(handle.reserved + i * 8, &word, 8);
    }
    return handle;
  };
  EmulatedProcess recorder(machine.With(), [](const Child& child) {
    child.UseDevice();
    const CUstream stream = child.NewStream();
    const CUdeviceptr gate = child.NewMemory(8);
    CUevent event = nullptr;
    CUipcEventHandle handle{};
    CHILD_OK(child.cuda().cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CHILD_OK(child.cuda().cuIpcGetEventHandle(&handle, event));
    CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHILD_OK(child.cuda().cuEventRecord(event, stream));
    for (int i = 0; i < 8; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, handle.reserved + i * 8, 8);
      child.Send(word);
    }
    child.Receive();
    CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
    child.Receive();
    CHILD_OK(child.cuda().cuEventDestroy(event));
    child.Send(1);
    child.Receive();
  });
  EmulatedProcess waiter(machine.With(), [receive_handle](const Child& child) {
    child.UseDevice();
    const CUstream stream = child.NewStream();
    const CUipcEventHandle handle = receive_handle(child);
    CUevent event = nullptr;
    CHILD_OK(child.cuda().cuIpcOpenEventHandle(&event, handle));
    CHILD_OK(child.cuda().cuStreamWaitEvent(stream, event, 0));
    CHILD_CUDA(CUDA_ERROR_NOT_READY, child.cuda().cuEventQuery(event));
    child.Send(1);
    CHILD_OK(child.cuda().cuStreamSynchronize(stream));
    child.Send(2);
    child.Receive();
    // Its owner has destroyed it.
    CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE, child.cuda().cuIpcOpenEventHandle(&event, handle));
  });
  for (int i = 0; i < 8; ++i) waiter.Send(recorder.Receive());
  CHECK(waiter.Receive() == 1);
  recorder.Send(1);
  CHECK(waiter.Receive() == 2);
  recorder.Send(1);
  CHECK(recorder.Receive() == 1);
  waiter.Send(1);
  CHECK(waiter.Join() == "");
  recorder.Send(1);
  CHECK(recorder.Join() == "");
}

// Launches kernels that count how many of them run at once, over `descriptor`'s memory. The second
// process begins when the first one is at work.
void CountTogether(const Child& child) {
  UniqueFd descriptor;
  child.Receive(&descriptor);
  void* const words =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  child.UseDevice();
  const CUstream stream = child.NewStream();
  CUdeviceptr pointer = 0;
  CHILD_OK(child.cuda().cuMemHostRegister(words, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
  CHILD_OK(child.cuda().cuMemHostGetDevicePointer(&pointer, words, 0));
  const CUfunction function = child.LoadKernel("count_running");
  void* parameters[] = {&pointer};
  child.Send(1);
  child.Receive();
  for (int i = 0; i < 60; ++i) {
    CHILD_OK(
        child.cuda().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
  CHILD_OK(child.cuda().cuStreamSynchronize(stream));
}

// The largest number of kernels that ran at once, of two processes with these settings.
std::uint64_t MostAtOnce(const Variables& first, const Variables& second) {
  const UniqueFd memory(::memfd_create("words", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memory.get(), 4096) == 0);
  EmulatedProcess processes[] = {EmulatedProcess(first, CountTogether),
                                 EmulatedProcess(second, CountTogether)};
  for (EmulatedProcess& process : processes) process.Send(1, memory.get());
  for (EmulatedProcess& process : processes) CHECK(process.Receive() == 1);
  for (EmulatedProcess& process : processes) process.Send(1);
  for (EmulatedProcess& process : processes) CHECK(process.Join() == "");
  std::array<std::uint64_t, 2> words{};
  constexpr std::size_t kBytes = sizeof(words);
  REQUIRE(::pread(memory.get(), words.data(), kBytes, 0) == kBytes);
  CHECK(words[0] == 0);
  return words[1];
}

TEST_CASE("Emulated machine: without MPS processes have the GPU in turn, with MPS together") {
  const MachineFile machine;
  const Variables alone = machine.With({{"MAX_DELAY_US", "0"}});
  const Variables with_mps = machine.With({{"MAX_DELAY_US", "0"}, {"MPS", "on"}});
  CHECK(MostAtOnce(alone, alone) == 1);
  CHECK(MostAtOnce(with_mps, with_mps) == 2);
  CHECK(MostAtOnce(with_mps, alone) == 1);
}

TEST_CASE("Emulated machine: a stream that waits leaves the GPU to other processes") {
  const MachineFile machine;
  EmulatedProcess waiting(machine.With(), [](const Child& child) {
    child.UseDevice();
    const CUstream stream = child.NewStream();
    const CUdeviceptr gate = child.NewMemory(8);
    CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
    child.Send(1);
    child.Receive();
  });
  CHECK(waiting.Receive() == 1);
  CHECK(RunEmulated(machine.With(), [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(8);
          CHILD_OK(child.cuda().cuStreamWriteValue64(stream, memory, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
        }) == "");
  waiting.Send(1);
  CHECK(waiting.Join() == "");
}

TEST_CASE("Emulated machine: a process killed in its slice does not keep the GPU") {
  const MachineFile machine;
  EmulatedProcess busy(machine.With({{"MAX_DELAY_US", "0"}}), [](const Child& child) {
    child.UseDevice();
    const CUstream stream = child.NewStream();
    const CUhostFn tell = [](void* argument) {
      static_cast<const Child*>(argument)->Send(1);
      ::sleep(60);
    };
    CHILD_OK(child.cuda().cuLaunchHostFunc(stream, tell, const_cast<Child*>(&child)));
    CHILD_OK(child.cuda().cuStreamSynchronize(stream));
  });
  CHECK(busy.Receive() == 1);
  busy.Kill();
  CHECK(RunEmulated(machine.With(), [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(8);
          CHILD_OK(child.cuda().cuStreamWriteValue64(stream, memory, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
        }) == "");
}

const Body kStay = [](const Child& child) {
  child.UseDevice();
  child.Send(1);
  child.Receive();
};

TEST_CASE("Emulated MPS: a server has one user at a time, unless it is for many") {
  const MachineFile machine;
  EmulatedProcess first(machine.With({{"MPS", "on"}, {"USER", "1001"}}), kStay);
  CHECK(first.Receive() == 1);
  const Variables other = machine.With({{"MPS", "on"}, {"USER", "1002"}});
  const Body refused = [](const Child& child) {
    CHILD_CUDA(CUDA_ERROR_MPS_SERVER_NOT_READY, child.cuda().cuInit(0));
  };
  const Body taken = [](const Child& child) { child.UseDevice(); };
  CHECK(RunEmulated(other, refused) == "");
  CHECK(RunEmulated(machine.With({{"MPS", "on"}, {"USER", "1001"}}), taken) == "");
  CHECK(RunEmulated(machine.With({{"MPS", "multiuser"}, {"USER", "1002"}}), taken) == "");
  CHECK(RunEmulated(machine.With({{"USER", "1002"}}), taken) == "");
  first.Send(1);
  CHECK(first.Join() == "");
  CHECK(RunEmulated(other, taken) == "");
}

TEST_CASE(
    "Emulated MPS: one client's fatal error is all clients', and nobody new comes meanwhile") {
  const MachineFile machine;
  const Variables with_mps = machine.With({{"MPS", "on"}});
  const Body fails = [](const Child& child) {
    child.UseDevice();
    CHILD_OK(child.cuda().cuLaunchKernel(child.LoadKernel("fail_assertion"), 1, 1, 1, 1, 1, 1, 0,
                                         child.NewStream(), nullptr, nullptr));
    child.WaitUntil([&] { return child.cuda().cuCtxSynchronize() != CUDA_SUCCESS; }, "the error");
  };
  const auto see = [](CUresult expected) {
    return [expected](const Child& child) {
      child.UseDevice();
      child.Send(1);
      child.Receive();
      CHILD_CUDA(expected, child.cuda().cuCtxSynchronize());
      child.Send(1);
      child.Receive();
    };
  };
  EmulatedProcess mate(with_mps, see(CUDA_ERROR_ASSERT));
  EmulatedProcess outsider(machine.With(), see(CUDA_SUCCESS));
  CHECK(mate.Receive() == 1);
  CHECK(outsider.Receive() == 1);
  CHECK(RunEmulated(with_mps, fails) == "");
  for (EmulatedProcess* process : {&mate, &outsider}) {
    process->Send(1);
    CHECK(process->Receive() == 1);
  }
  CHECK(RunEmulated(with_mps, [](const Child& child) {
          CHILD_CUDA(CUDA_ERROR_MPS_SERVER_NOT_READY, child.cuda().cuInit(0));
        }) == "");
  for (EmulatedProcess* process : {&mate, &outsider}) {
    process->Send(1);
    CHECK(process->Join() == "");
  }
  CHECK(RunEmulated(with_mps, [](const Child& child) { child.UseDevice(); }) == "");
}

}  // namespace
}  // namespace ringd::emulator
