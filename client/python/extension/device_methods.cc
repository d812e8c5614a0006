#include "client/python/extension/device_methods.h"

#include <cstdint>

#include "client/python/extension/context_object.h"
#include "client/python/extension/numbers.h"

namespace ringd::python {

PyObject* DeviceOpen(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  std::uint64_t device = 0;
  std::uint64_t slab_bytes = 0;
  if (!CheckCount("device_open", count, 2, 2) || !ReadNumber(arguments[0], device) ||
      !ReadNumber(arguments[1], slab_bytes)) {
    return nullptr;
  }
  if (device > INT32_MAX) return RaiseStatus(RINGD_NOT_FOUND, "no GPU has this ordinal");
  ringd_device_options options{};
  options.struct_size = sizeof(options);
  options.device = static_cast<std::int32_t>(device);
  options.slab_bytes = slab_bytes;
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;
    status = ringd_device_open(Self(self)->context, &options);
  }
  return NoneOrError(status);
}

PyObject* DeviceAlloc(PyObject* self, PyObject* argument) {
  std::uint64_t bytes = 0;
  if (!ReadNumber(argument, bytes)) return nullptr;
  void* address = nullptr;
  const ringd_status status = ringd_device_alloc(Self(self)->context, bytes, &address);
  if (status != RINGD_OK) return RaiseStatus(status);
  return PyLong_FromVoidPtr(address);
}

PyObject* DeviceFree(PyObject* self, PyObject* argument) {
  std::uint64_t address = 0;
  if (!ReadNumber(argument, address)) return nullptr;
  ringd_device_free(Self(self)->context, Pointer(address));
  Py_RETURN_NONE;
}

PyObject* SubmitOnStream(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  std::uint64_t number = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t stream = 0;
  if (!CheckCount("submit_on_stream", count, 4, 4) || !ReadNumber(arguments[0], number) ||
      !ReadNumber(arguments[1], from) || !ReadNumber(arguments[2], to) ||
      !ReadNumber(arguments[3], stream)) {
    return nullptr;
  }
  if (number > UINT32_MAX) {
    return RaiseStatus(RINGD_NOT_FOUND, "no registration has this number");
  }
  ringd_operation operation = 0;
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;  // it may wait for room
    status = ringd_submit_on_stream(Self(self)->context, static_cast<ringd_registration>(number),
                                    Pointer(from), Pointer(to), Pointer(stream), &operation);
  }
  if (status != RINGD_OK) return RaiseStatus(status);
  return PyLong_FromUnsignedLongLong(operation);
}

PyObject* StreamWait(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  std::uint64_t operation = 0;
  std::uint64_t stream = 0;
  if (!CheckCount("stream_wait", count, 2, 2) || !ReadNumber(arguments[0], operation) ||
      !ReadNumber(arguments[1], stream)) {
    return nullptr;
  }
  ringd_status status = RINGD_OK;
  {
    // It may wait for other ranks.
    const WithoutGil released;
    status = ringd_stream_wait(Self(self)->context, operation, Pointer(stream));
  }
  return NoneOrError(status);
}

}  // namespace ringd::python
