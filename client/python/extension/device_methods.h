// A context's methods about tensors in device memory.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_DEVICE_METHODS_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_DEVICE_METHODS_H_

#include <Python.h>

namespace ringd::python {

// Functions of Python's types for methods: `self` is a ContextObject. With the GIL; null with a
// Python error set if they fail.

// (device, slab_bytes): gives the GIL up while it blocks.
PyObject* DeviceOpen(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
PyObject* DeviceAlloc(PyObject* self, PyObject* argument);
PyObject* DeviceFree(PyObject* self, PyObject* argument);
// (registration, source, destination, stream) -> operation
PyObject* SubmitOnStream(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
// (operation, stream)
PyObject* StreamWait(PyObject* self, PyObject* const* arguments, Py_ssize_t count);

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_DEVICE_METHODS_H_
