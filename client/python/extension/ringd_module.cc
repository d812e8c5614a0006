// The extension module `ringd._ringd`: libringd for Python, by hand over the stable ABI.
//
// By hand, because a call is what counts here: tens of nanoseconds, which no generator and no
// ctypes give under the limited API. One build serves CPython 3.10 and later. Nothing but the
// interface of client/ringd.h is known here; tensors are addresses.
#include <Python.h>
#include <unistd.h>

#include <cstdint>

#include "client/python/extension/errors.h"
#include "client/python/extension/gradient_hook_type.h"
#include "client/python/extension/ringd_context.h"
#include "client/python/extension/torch_tensors.h"
#include "client/ringd.h"

namespace ringd::python {
namespace {

// The types of contexts and of gradients' hooks; made once, by the first import.
PyObject* context_type = nullptr;
PyObject* gradient_hook_type = nullptr;

// Whether a signal's handler has raised an exception (KeyboardInterrupt), which is then set. Only
// the main thread has any to handle.
std::int32_t IsInterrupted(void* /*user_data*/) {
  // Others do without the lock of the interpreter, which may be ending.
  if (::gettid() != ::getpid()) return 0;
  const PyGILState_STATE state = PyGILState_Ensure();
  const int raised = PyErr_CheckSignals();
  PyGILState_Release(state);
  return raised;
}

// open(socket, job_id, rank, size, local_rank, local_size, rendezvous, secret, start_timeout_ms,
//      operation_timeout_ms, fusion, weight) -> Context. None and -1 mean: from the environment.
PyObject* Open(PyObject* /*module*/, PyObject* arguments) {
  ringd_options options{};
  options.struct_size = sizeof(options);
  unsigned int start_timeout_ms = 0;
  unsigned int operation_timeout_ms = 0;
  unsigned int weight = 0;
  int rank = -1;
  int size = 0;
  int local_rank = 0;
  int local_size = 0;
  if (PyArg_ParseTuple(arguments, "zziiiizzIIzI:open", &options.socket, &options.job_id, &rank,
                       &size, &local_rank, &local_size, &options.rendezvous, &options.secret,
                       &start_timeout_ms, &operation_timeout_ms, &options.fusion, &weight) == 0) {
    return nullptr;
  }
  options.rank = rank;
  options.size = size;
  options.local_rank = local_rank;
  options.local_size = local_size;
  options.start_timeout_ms = start_timeout_ms;
  options.operation_timeout_ms = operation_timeout_ms;
  options.weight = weight;
  options.is_interrupted = IsInterrupted;
  ringd_context* context = nullptr;
  ringd_status status = RINGD_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = ringd_open(&options, &context);
  Py_END_ALLOW_THREADS;
  if (status != RINGD_OK) return RaiseStatus(status);
  return WrapContext(context_type, context);
}

PyObject* SetErrors(PyObject* /*module*/, PyObject* types) {
  if (!PyDict_Check(types)) {
    PyErr_SetString(PyExc_TypeError, "set_error_types takes a dict from status to class");
    return nullptr;
  }
  SetErrorTypes(types);
  Py_RETURN_NONE;
}

PyObject* Version(PyObject* /*module*/, PyObject* /*unused*/) {
  return PyUnicode_FromString(ringd_version());
}

PyMethodDef functions[] = {
    {"open", Open, METH_VARARGS,
     "Attaches to ringd and takes a place in a job; blocks until all ranks have."},
    {"set_error_types", SetErrors, METH_O, "Names the exception class for each status."},
    {"set_torch", SetTorch, METH_VARARGS, "What GradientHook needs of PyTorch."},
    {"version", Version, METH_NOARGS, "The release of libringd."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "ringd._ringd",
    "libringd for Python.",
    -1,
    functions,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

PyObject* MakeModule() {
  // The header's version is what this was built with; the library beside it may only be newer.
  const uint32_t running = ringd_api_version();
  if (running >> 16 != RINGD_API_VERSION_MAJOR || running < RINGD_API_VERSION) {
    PyErr_Format(PyExc_ImportError,
                 "ringd: libringd has interface version %u.%u, this package needs %u.%u",
                 running >> 16, running & 0xffffU, static_cast<unsigned>(RINGD_API_VERSION_MAJOR),
                 static_cast<unsigned>(RINGD_API_VERSION_MINOR));
    return nullptr;
  }
  if (context_type == nullptr) context_type = MakeContextType();
  if (context_type == nullptr) return nullptr;
  if (gradient_hook_type == nullptr) gradient_hook_type = MakeGradientHookType(context_type);
  if (gradient_hook_type == nullptr) return nullptr;
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  if (PyModule_AddObjectRef(module, "Context", context_type) < 0 ||
      PyModule_AddObjectRef(module, "GradientHook", gradient_hook_type) < 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}

}  // namespace
}  // namespace ringd::python

PyMODINIT_FUNC PyInit__ringd(void) { return ringd::python::MakeModule(); }
