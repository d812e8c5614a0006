// From a ringd_status to a Python exception.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_ERRORS_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_ERRORS_H_

#include <Python.h>

#include "client/ringd.h"

namespace ringd::python {

// Remembers the class to raise for each status: a dict from int to type, kept for good.
// Thread safety: these functions need the GIL.
void SetErrorTypes(PyObject* types);

// Sets the exception for `status` with the words of this thread's last failed call, and returns
// null. Call it before anything else of libringd is called on this thread.
PyObject* RaiseStatus(ringd_status status);

// The same with words of our own.
PyObject* RaiseStatus(ringd_status status, const char* text);

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_ERRORS_H_
