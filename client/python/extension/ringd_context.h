// The Python type `ringd._ringd.Context`: one rank's place in one job, over the C interface.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_RINGD_CONTEXT_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_RINGD_CONTEXT_H_

#include <Python.h>

#include "client/ringd.h"

namespace ringd::python {

// Makes the type. A new reference; null with a Python error set.
PyObject* MakeContextType();

// Wraps `context`, which becomes the object's. `type` is what MakeContextType gave. Null with a
// Python error set if that fails; `context` is closed then.
PyObject* WrapContext(PyObject* type, ringd_context* context);

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_RINGD_CONTEXT_H_
