// CUDA's functions about the driver, its errors and its devices.
#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::Call;
using ringd::emulator::kAnyTime;
using ringd::emulator::kInitialised;
using ringd::emulator::Mps;
using ringd::emulator::Settings;

namespace {

// Code, name and text of errors that the emulator gives, in CUDA's words.
struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};
#define RINGD_ERROR(code, text) \
  { code, #code, text }
constexpr ErrorText kErrors[] = {
    RINGD_ERROR(CUDA_SUCCESS, "no error"),
    RINGD_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    RINGD_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    RINGD_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    RINGD_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    RINGD_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    RINGD_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    RINGD_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    RINGD_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                "peer access is not supported between these two devices"),
    RINGD_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    RINGD_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    RINGD_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    RINGD_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    RINGD_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    RINGD_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    RINGD_ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    RINGD_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                "part or all of the requested memory range is already mapped"),
    RINGD_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                "pointer does not correspond to a registered memory region"),
    RINGD_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    RINGD_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    RINGD_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    RINGD_ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY,
                "the MPS server is not ready to accept new MPS client requests"),
    RINGD_ERROR(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                "the hardware resources required to create MPS client have been exhausted"),
    RINGD_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    RINGD_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef RINGD_ERROR

const ErrorText* FindError(CUresult code) {
  const auto* const found =
      std::find_if(std::begin(kErrors), std::end(kErrors),
                   [&](const ErrorText& error) { return error.code == code; });
  return found == std::end(kErrors) ? nullptr : found;
}

// What names a device everywhere: its ordinal in the last byte.
CUuuid Uuid(int device, bool of_instance) {
  CUuuid uuid{};
  const char text[] = "ringd-emulated";
  std::memcpy(uuid.bytes, text, sizeof text - 1);
  uuid.bytes[14] = static_cast<char>(of_instance ? 1 : 0);
  uuid.bytes[15] = static_cast<char>(device);
  return uuid;
}

int Attribute(const Settings& settings, CUdevice_attribute attribute, int device) {
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return settings.compute_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
    // So that code which forgets cuMemHostGetDevicePointer is found out.
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return device + 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      return settings.stream_memory_operations ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      return settings.mps == Mps::kOff ? 0 : 1;
    default:
      return -1;
  }
}

}  // namespace

CUresult cuInit(unsigned int flags) {
  const Call call("cuInit", kAnyTime);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return call.process().Initialise();
}

CUresult cuDriverGetVersion(int* version) {
  const Call call("cuDriverGetVersion", kAnyTime);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = call.process().settings().driver_version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  const ErrorText* const found = FindError(error);
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* const found = FindError(error);
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  const Call call("cuDeviceGetCount", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = call.process().settings().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const Call call("cuDeviceGet", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (call.process().context(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  const Call call("cuDeviceGetName", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (name == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (call.process().context(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<std::size_t>(bytes), "ringd emulated GPU%s",
                call.process().settings().mig ? " MIG 1g.10gb" : "");
  return CUDA_SUCCESS;
}

// The GPU's own, whether it is divided or not.
#undef cuDeviceGetUuid
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  const Call call("cuDeviceGetUuid", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (call.process().context(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = Uuid(device, false);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  const Call call("cuDeviceGetUuid", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (call.process().context(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = Uuid(device, call.process().settings().mig);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  const Call call("cuDeviceTotalMem", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (call.process().context(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = call.process().settings().memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const Call call("cuDeviceGetAttribute", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (call.process().context(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const int found = Attribute(call.process().settings(), attribute, device);
  if (value == nullptr || found < 0) return CUDA_ERROR_INVALID_VALUE;
  *value = found;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
  const Call call("cuDeviceGetPCIBusId", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (id == nullptr || bytes < 13) return CUDA_ERROR_INVALID_VALUE;
  if (call.process().context(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device + 1);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  const Call call("cuDeviceCanAccessPeer", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (call.process().context(device) == nullptr || call.process().context(peer) == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = call.process().settings().peer_access && device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}
