#include "client/python/extension/ringd_context.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/python/extension/communicator_methods.h"
#include "client/python/extension/context_object.h"
#include "client/python/extension/device_methods.h"
#include "client/python/extension/errors.h"
#include "client/python/extension/numbers.h"
#include "client/python/extension/submission.h"
#include "client/python/extension/tensor_list.h"

namespace ringd::python {
namespace {

// How often a waiting main thread looks whether it has been interrupted (Ctrl-C).
constexpr std::int64_t kSignalCheckMs = 100;

PyObject* Place(PyObject* self, PyObject* /*unused*/) {
  ringd_place place{};
  place.struct_size = sizeof(place);
  const ringd_status status = ringd_get_place(Self(self)->context, &place);
  if (status != RINGD_OK) return RaiseStatus(status);
  return Py_BuildValue("(iiiiiiiiNIss)", place.rank, place.size, place.local_rank, place.local_size,
                       place.cross_rank, place.cross_size, place.node_count, place.node_index,
                       PyBool_FromLong(place.homogeneous), place.generation, place.node_name,
                       place.daemon_version);
}

PyObject* Register(PyObject* self, PyObject* list) {
  TensorList tensors;
  if (!tensors.Parse(list)) return nullptr;
  std::vector<ringd_registration> numbers(tensors.size());
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;
    status = ringd_register(Self(self)->context, tensors.tensors(), tensors.size(), numbers.data());
  }
  if (status != RINGD_OK) return RaiseStatus(status);
  PyObject* result = PyList_New(static_cast<Py_ssize_t>(numbers.size()));
  if (result == nullptr) return nullptr;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    (*Self(self)->tensor_bytes)[numbers[i]] = tensors.BytesOf(i);
    PyObject* number = PyLong_FromUnsignedLong(numbers[i]);
    if (number == nullptr) {
      Py_DECREF(result);
      return nullptr;
    }
    PyList_SetItem(result, static_cast<Py_ssize_t>(i), number);
  }
  return result;
}

PyObject* Unregister(PyObject* self, PyObject* list) {
  std::vector<std::uint64_t> given;
  if (!ReadNumbers("unregister", list, given)) return nullptr;
  std::vector<ringd_registration> numbers;
  for (const std::uint64_t number : given) {
    if (number > UINT32_MAX) {
      return RaiseStatus(RINGD_NOT_FOUND, "no registration has this number");
    }
    numbers.push_back(static_cast<ringd_registration>(number));
  }
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;
    status = ringd_unregister(Self(self)->context, numbers.data(), numbers.size());
  }
  if (status != RINGD_OK) return RaiseStatus(status);
  for (const ringd_registration number : numbers) Self(self)->tensor_bytes->erase(number);
  Py_RETURN_NONE;
}

// Reads (registration, source, destination). False with a Python error set if that is not given.
bool ReadSubmission(const char* method, PyObject* const* arguments, Py_ssize_t count,
                    Submission& what) {
  std::uint64_t number = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  if (!CheckCount(method, count, 3, 3) || !ReadNumber(arguments[0], number) ||
      !ReadNumber(arguments[1], from) || !ReadNumber(arguments[2], to)) {
    return false;
  }
  if (number > UINT32_MAX) {
    RaiseStatus(RINGD_NOT_FOUND, "no registration has this number");
    return false;
  }
  what = {static_cast<ringd_registration>(number), Pointer(from), Pointer(to)};
  return true;
}

PyObject* SubmitWith(PyObject* self, PyObject* const* arguments, Py_ssize_t count, bool may_wait) {
  Submission what;
  if (!ReadSubmission(may_wait ? "submit" : "try_submit", arguments, count, what)) return nullptr;
  ringd_operation operation = 0;
  const ringd_status status = Submit(*Self(self), what, may_wait, operation);
  if (status != RINGD_OK) return RaiseStatus(status);
  return PyLong_FromUnsignedLongLong(operation);
}

PyObject* SubmitWaiting(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return SubmitWith(self, arguments, count, true);
}

PyObject* TrySubmit(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return SubmitWith(self, arguments, count, false);
}

// Blocks for RankExchange::kPatience or so, if at all; signals are looked at after it, and in the
// wait.
PyObject* SubmitAwaited(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  Submission what;
  if (!ReadSubmission("submit_awaited", arguments, count, what)) return nullptr;
  ringd_operation operation = 0;
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;
    status = ringd_submit_awaited(Self(self)->context, what.registration, what.source,
                                  what.destination, &operation);
  }
  if (status != RINGD_OK) return RaiseStatus(status);
  return PyLong_FromUnsignedLongLong(operation);
}

PyObject* Test(PyObject* self, PyObject* argument) {
  std::uint64_t operation = 0;
  if (!ReadNumber(argument, operation)) return nullptr;
  std::int32_t done = 0;
  const ringd_status status = ringd_test(Self(self)->context, operation, &done);
  if (status != RINGD_OK) return RaiseStatus(status);
  return PyBool_FromLong(done);
}

// Calls wait(timeout_ms) without the GIL, again and again for `timeout_ms` (negative: no limit),
// and looks for signals in between. False with a Python error set if there was one, and then what
// it waits for is still in flight.
template <typename WaitFor>
bool WaitInSlices(long long timeout_ms, WaitFor wait, ringd_status& status) {
  using Milliseconds = std::chrono::milliseconds;
  const auto began = std::chrono::steady_clock::now();
  for (;;) {
    std::int64_t slice_ms = kSignalCheckMs;
    bool last = false;
    if (timeout_ms >= 0) {
      const auto waited =
          std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - began);
      const std::int64_t left_ms = std::max<std::int64_t>(timeout_ms - waited.count(), 0);
      last = left_ms <= slice_ms;
      slice_ms = std::min(left_ms, slice_ms);
    }
    {
      const WithoutGil without_gil;
      status = wait(slice_ms);
    }
    // This status says that something is still in flight, and nothing else.
    if (status != RINGD_DEADLINE_EXCEEDED || last) return true;
    if (PyErr_CheckSignals() != 0) return false;
  }
}

// The optional second argument. False with a Python error set if it is no number.
bool ReadTimeout(PyObject* const* arguments, Py_ssize_t count, long long& timeout_ms) {
  timeout_ms = -1;
  if (count < 2) return true;
  timeout_ms = PyLong_AsLongLong(arguments[1]);
  return timeout_ms != -1 || PyErr_Occurred() == nullptr;
}

PyObject* Wait(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  std::uint64_t operation = 0;
  long long timeout_ms = -1;
  if (!CheckCount("wait", count, 1, 2) || !ReadNumber(arguments[0], operation) ||
      !ReadTimeout(arguments, count, timeout_ms)) {
    return nullptr;
  }
  ringd_status status = RINGD_OK;
  const auto wait = [&](std::int64_t slice_ms) {
    return ringd_wait(Self(self)->context, operation, slice_ms);
  };
  return WaitInSlices(timeout_ms, wait, status) ? NoneOrError(status) : nullptr;
}

PyObject* WaitAll(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  long long timeout_ms = -1;
  if (!CheckCount("wait_all", count, 1, 2) || !ReadTimeout(arguments, count, timeout_ms)) {
    return nullptr;
  }
  PyObject* const list = arguments[0];
  std::vector<ringd_operation> operations;
  if (!ReadNumbers("wait_all", list, operations)) return nullptr;
  ringd_status status = RINGD_OK;
  const auto wait = [&](std::int64_t slice_ms) {
    return ringd_wait_all(Self(self)->context, operations.data(), operations.size(), slice_ms);
  };
  const bool uninterrupted = WaitInSlices(timeout_ms, wait, status);
  if (uninterrupted) return WriteNumbers(list, operations) ? NoneOrError(status) : nullptr;
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);  // the interrupt, which must not be lost to the list
  if (WriteNumbers(list, operations)) PyErr_Restore(type, value, traceback);
  return nullptr;
}

PyObject* ArenaAlloc(PyObject* self, PyObject* argument) {
  std::uint64_t bytes = 0;
  if (!ReadNumber(argument, bytes)) return nullptr;
  void* address = nullptr;
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;  // zeroing large memory takes its time
    status = ringd_arena_alloc(Self(self)->context, bytes, &address);
  }
  if (status != RINGD_OK) return RaiseStatus(status);
  return PyLong_FromVoidPtr(address);
}

PyObject* ArenaFree(PyObject* self, PyObject* argument) {
  std::uint64_t address = 0;
  if (!ReadNumber(argument, address)) return nullptr;
  ringd_arena_free(Self(self)->context, Pointer(address));
  Py_RETURN_NONE;
}

PyObject* ArenaContains(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  if (!CheckCount("arena_contains", count, 2, 2) || !ReadNumber(arguments[0], address) ||
      !ReadNumber(arguments[1], bytes)) {
    return nullptr;
  }
  return PyBool_FromLong(ringd_arena_contains(Self(self)->context, Pointer(address), bytes));
}

PyObject* Leave(PyObject* self, PyObject* /*unused*/) {
  Self(self)->ended = true;
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;
    status = ringd_leave(Self(self)->context);
  }
  return NoneOrError(status);
}

PyObject* Abandon(PyObject* self, PyObject* why) {
  // Before anything changes: text with lone surrogates is none that can be told.
  const char* const text = PyUnicode_AsUTF8AndSize(why, nullptr);
  if (text == nullptr) return nullptr;
  Self(self)->ended = true;
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;
    status = ringd_abandon_because(Self(self)->context, text);
  }
  return NoneOrError(status);
}

void Deallocate(PyObject* self) {
  ContextObject* object = Self(self);
  if (object->context != nullptr) {
    const WithoutGil without_gil;
    ringd_close(object->context);
  }
  delete object->tensor_bytes;
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(self));
  PyObject_Free(self);
  Py_DECREF(type);
}

using FastMethod = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

// Python keeps all kinds of methods in one pointer type.
PyCFunction Fast(FastMethod method) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method));
}

}  // namespace

PyObject* MakeContextType() {
  // Python keeps a pointer to it.
  static PyMethodDef methods[] = {
      {"place", Place, METH_NOARGS, "Where this rank is: a tuple in the order of ringd.Place."},
      {"register", Register, METH_O, "Describes tensors; a list of registrations."},
      {"create_communicator", Fast(CreateCommunicator), METH_FASTCALL,
       "(name, ranks, timeout_ms, by_order) -> communicator: blocks until all have called."},
      {"submit_in_order", Fast(SubmitInOrder), METH_FASTCALL,
       "(communicator, kind, data_type, op, root_rank, count, source, destination) -> operation"},
      {"destroy_communicator", DestroyCommunicator, METH_O, "This rank needs it no more."},
      {"communicator_place", CommunicatorPlace, METH_O,
       "(communicator) -> (rank, size, node_count, node_index)"},
      {"unregister", Unregister, METH_O, "Gives back a list of registrations."},
      {"submit", Fast(SubmitWaiting), METH_FASTCALL,
       "(registration, source, destination) -> operation"},
      {"try_submit", Fast(TrySubmit), METH_FASTCALL, "As submit, without waiting for room."},
      {"submit_awaited", Fast(SubmitAwaited), METH_FASTCALL,
       "As submit, for what is waited for next: small operations may be done when it returns."},
      {"test", Test, METH_O, "Whether an operation has ended."},
      {"wait", Fast(Wait), METH_FASTCALL, "(operation, timeout_ms=-1): waits and consumes it."},
      {"wait_all", Fast(WaitAll), METH_FASTCALL,
       "(list of operations, timeout_ms=-1): waits for all; those that ended well become done "
       "ones."},
      {"arena_alloc", ArenaAlloc, METH_O, "The address of zeroed memory shared with ringd."},
      {"arena_free", ArenaFree, METH_O, "Gives arena memory back."},
      {"arena_contains", Fast(ArenaContains), METH_FASTCALL, "(address, bytes) -> bool"},
      {"device_open", Fast(DeviceOpen), METH_FASTCALL,
       "(device, slab_bytes): opens a GPU; ringd makes memory there for this rank's tensors."},
      {"device_alloc", DeviceAlloc, METH_O, "A device pointer into that memory."},
      {"device_free", DeviceFree, METH_O, "Gives device memory back."},
      {"submit_on_stream", Fast(SubmitOnStream), METH_FASTCALL,
       "(registration, source, destination, stream) -> operation"},
      {"stream_wait", Fast(StreamWait), METH_FASTCALL,
       "(operation, stream): what is put on the stream from now on has the result."},
      {"leave", Leave, METH_NOARGS, "Leaves the job; calls under way end with CancelledError."},
      {"abandon", Abandon, METH_O, "(why): as leave, but the other ranks are told of a failure."},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(Deallocate)},
      {Py_tp_methods, methods},
      {0, nullptr},
  };
  static PyType_Spec spec = {"ringd._ringd.Context", sizeof(ContextObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return PyType_FromSpec(&spec);
}

PyObject* WrapContext(PyObject* type, ringd_context* context) {
  ContextObject* object = PyObject_New(ContextObject, reinterpret_cast<PyTypeObject*>(type));
  if (object == nullptr) {
    ringd_close(context);
    return nullptr;
  }
  object->context = context;
  object->ended = false;
  object->tensor_bytes = new std::unordered_map<std::uint64_t, std::uint64_t>();
  return reinterpret_cast<PyObject*>(object);
}

}  // namespace ringd::python
