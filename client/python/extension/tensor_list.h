// Tensor descriptions from Python: a sequence of tuples becomes an array of ringd_tensor.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_TENSOR_LIST_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_TENSOR_LIST_H_

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/ringd.h"

namespace ringd::python {

// What Context.register is given, in C's form.
//
// Thread safety: none. Parse needs the GIL; the rest does not.
// Invariant: tensors() points into names and shapes that live as long as this.
class TensorList {
 public:
  // `list` holds tuples (name, kind, data_type, op, shape, prescale, postscale, root_rank). False
  // with a Python error set if it does not.
  [[nodiscard]] bool Parse(PyObject* list);

  const ringd_tensor* tensors() const noexcept { return tensors_.data(); }
  std::size_t size() const noexcept { return tensors_.size(); }

  // Bytes of one tensor; 0 for a barrier and for what the library is going to refuse.
  std::uint64_t BytesOf(std::size_t index) const noexcept;

 private:
  bool ParseOne(PyObject* tuple, std::size_t index);

  std::vector<ringd_tensor> tensors_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::int64_t>> shapes_;
};

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_TENSOR_LIST_H_
