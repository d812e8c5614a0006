#include "client/python/extension/errors.h"

namespace ringd::python {
namespace {

// Guarded by the GIL.
PyObject* error_types = nullptr;

// A borrowed reference; RuntimeError until the package has said what it wants.
PyObject* TypeFor(ringd_status status) {
  if (error_types != nullptr) {
    PyObject* key = PyLong_FromLong(status);
    PyObject* type = key == nullptr ? nullptr : PyDict_GetItemWithError(error_types, key);
    Py_XDECREF(key);
    if (type != nullptr) return type;
    PyErr_Clear();
  }
  return PyExc_RuntimeError;
}

}  // namespace

void SetErrorTypes(PyObject* types) {
  Py_INCREF(types);
  Py_XDECREF(error_types);
  error_types = types;
}

PyObject* RaiseStatus(ringd_status status) { return RaiseStatus(status, ringd_last_error()); }

PyObject* RaiseStatus(ringd_status status, const char* text) {
  // What has interrupted the call is an exception already.
  if (PyErr_Occurred() != nullptr) return nullptr;
  // A name cut in the middle of a character must not hide the rest of the message.
  PyObject* message =
      PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(__builtin_strlen(text)), "replace");
  if (message == nullptr) return nullptr;
  PyErr_SetObject(TypeFor(status), message);
  Py_DECREF(message);
  return nullptr;
}

}  // namespace ringd::python
