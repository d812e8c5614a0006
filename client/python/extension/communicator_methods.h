// Methods of ringd.Context that make, end and describe communicators.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_COMMUNICATOR_METHODS_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_COMMUNICATOR_METHODS_H_

#include <Python.h>

namespace ringd::python {

// Each is called with the GIL, which it gives up while it blocks. Null: a Python error is set.
//
// (name, ranks, timeout_ms, by_order) -> communicator. Blocks until all its ranks have called.
PyObject* CreateCommunicator(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
// (communicator, kind, data_type, op, root_rank, count, source, destination, prescale, postscale)
// -> operation.
PyObject* SubmitInOrder(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
// (communicator) -> None. A call to ringd.
PyObject* DestroyCommunicator(PyObject* self, PyObject* argument);
// (communicator) -> (rank, size, node_count, node_index).
PyObject* CommunicatorPlace(PyObject* self, PyObject* argument);

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_COMMUNICATOR_METHODS_H_
