// The Python type ringd._ringd.GradientHook.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_GRADIENT_HOOK_TYPE_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_GRADIENT_HOOK_TYPE_H_

#include <Python.h>

namespace ringd::python {

// The type, which may be subclassed; null with a Python error set if there is no memory. Its
// methods are described in _ringd.pyi. `context_type`: that of the contexts that a hook may be
// armed with. Called once.
PyObject* MakeGradientHookType(PyObject* context_type);

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_GRADIENT_HOOK_TYPE_H_
