// The Python object behind ringd.Context, and what its methods have in common.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_CONTEXT_OBJECT_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_CONTEXT_OBJECT_H_

#include <Python.h>

#include <cstdint>
#include <unordered_map>

#include "client/python/extension/errors.h"
#include "client/ringd.h"

namespace ringd::python {

// Thread safety: the fields are guarded by the GIL; libringd takes calls from any thread, and every
//   call holds a reference to the object, so that nothing can be in a call when it goes.
// Ownership: owns the context. Arena memory lives as long as this object, also after leave().
struct ContextObject {
  PyObject_HEAD ringd_context* context;
  // Bytes of each tensor, by registration number.
  std::unordered_map<std::uint64_t, std::uint64_t>* tensor_bytes;
  // Whether the program has left the job.
  bool ended;
};

inline ContextObject* Self(PyObject* object) { return reinterpret_cast<ContextObject*>(object); }

// Releases the GIL for as long as it lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  // Where Python ends, it ends daemon threads here (pthread_exit), which unwinds their stack.
  ~WithoutGil() noexcept(false) { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

inline bool CheckCount(const char* method, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most) {
  if (given >= least && given <= most) return true;
  PyErr_Format(PyExc_TypeError, "%s takes %zd to %zd arguments, got %zd", method, least, most,
               given);
  return false;
}

inline PyObject* NoneOrError(ringd_status status) {
  if (status != RINGD_OK) return RaiseStatus(status);
  Py_RETURN_NONE;
}

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_CONTEXT_OBJECT_H_
