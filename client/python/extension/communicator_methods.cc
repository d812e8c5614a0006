#include "client/python/extension/communicator_methods.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "client/python/extension/context_object.h"
#include "client/python/extension/numbers.h"

namespace ringd::python {
namespace {

// False with a Python error set if it can be no communicator's number.
bool ReadCommunicator(PyObject* argument, ringd_communicator& communicator) {
  std::uint64_t number = 0;
  if (!ReadNumber(argument, number)) return false;
  if (number > UINT32_MAX) {
    RaiseStatus(RINGD_NOT_FOUND, "no communicator has this number");
    return false;
  }
  communicator = static_cast<ringd_communicator>(number);
  return true;
}

}  // namespace

PyObject* CreateCommunicator(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (!CheckCount("create_communicator", count, 4, 4)) return nullptr;
  Py_ssize_t bytes = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(arguments[0], &bytes);
  if (text == nullptr) return nullptr;
  const std::string name(text, static_cast<std::size_t>(bytes));
  if (name.find('\0') != std::string::npos) {
    PyErr_SetString(PyExc_ValueError, "a communicator's name contains a null character");
    return nullptr;
  }
  std::vector<std::uint64_t> given;
  std::uint64_t timeout_ms = 0;
  if (!ReadNumbers("create_communicator", arguments[1], given) ||
      !ReadNumber(arguments[2], timeout_ms)) {
    return nullptr;
  }
  std::vector<std::int32_t> ranks;
  for (const std::uint64_t rank : given) {
    // What no job has, the library refuses.
    ranks.push_back(static_cast<std::int32_t>(std::min<std::uint64_t>(rank, INT32_MAX)));
  }
  ringd_communicator_options options{};
  options.struct_size = sizeof(options);
  options.name = name.c_str();
  options.ranks = ranks.data();
  options.count = ranks.size();
  options.timeout_ms = static_cast<std::uint32_t>(std::min<std::uint64_t>(timeout_ms, UINT32_MAX));
  const int by_order = PyObject_IsTrue(arguments[3]);
  if (by_order < 0) return nullptr;
  options.matching = by_order != 0 ? RINGD_BY_ORDER : RINGD_BY_NAME;
  ringd_communicator communicator = 0;
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;
    status = ringd_communicator_create(Self(self)->context, &options, &communicator);
  }
  if (status != RINGD_OK) return RaiseStatus(status);
  return PyLong_FromUnsignedLong(communicator);
}

PyObject* SubmitInOrder(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (!CheckCount("submit_in_order", count, 10, 10)) return nullptr;
  ringd_communicator communicator = 0;
  if (!ReadCommunicator(arguments[0], communicator)) return nullptr;
  // kind, data_type, op, root_rank, count, source, destination
  std::uint64_t given[7];
  for (int i = 0; i < 7; ++i) {
    if (!ReadNumber(arguments[i + 1], given[i])) return nullptr;
  }
  double scales[2];
  for (int i = 0; i < 2; ++i) {
    scales[i] = PyFloat_AsDouble(arguments[i + 8]);
    if (scales[i] == -1.0 && PyErr_Occurred() != nullptr) return nullptr;
  }
  // What no operation has, the library refuses.
  const auto small = [](std::uint64_t number) {
    return static_cast<std::int32_t>(std::min<std::uint64_t>(number, INT32_MAX));
  };
  ringd_collective collective{};
  collective.struct_size = sizeof(collective);
  collective.kind = small(given[0]);
  collective.data_type = small(given[1]);
  collective.op = small(given[2]);
  collective.root_rank = small(given[3]);
  collective.count = given[4];
  collective.prescale = scales[0];
  collective.postscale = scales[1];
  ringd_operation operation = 0;
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;
    status = ringd_submit_in_order(Self(self)->context, communicator, &collective,
                                   Pointer(given[5]), Pointer(given[6]), &operation);
  }
  if (status != RINGD_OK) return RaiseStatus(status);
  return PyLong_FromUnsignedLongLong(operation);
}

PyObject* DestroyCommunicator(PyObject* self, PyObject* argument) {
  ringd_communicator communicator = 0;
  if (!ReadCommunicator(argument, communicator)) return nullptr;
  ringd_status status = RINGD_OK;
  {
    const WithoutGil without_gil;
    status = ringd_communicator_destroy(Self(self)->context, communicator);
  }
  return NoneOrError(status);
}

PyObject* CommunicatorPlace(PyObject* self, PyObject* argument) {
  ringd_communicator communicator = 0;
  if (!ReadCommunicator(argument, communicator)) return nullptr;
  ringd_communicator_place place{};
  place.struct_size = sizeof(place);
  const ringd_status status =
      ringd_get_communicator_place(Self(self)->context, communicator, &place);
  if (status != RINGD_OK) return RaiseStatus(status);
  return Py_BuildValue("(iiii)", place.rank, place.size, place.node_count, place.node_index);
}

}  // namespace ringd::python
