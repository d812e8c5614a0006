// PyTorch's tensors, seen through their Python attributes.
//
// Nothing of PyTorch's C++ is known here, so one build works with every release of it.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_TORCH_TENSORS_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_TORCH_TENSORS_H_

#include <Python.h>

#include <cstdint>
#include <utility>

namespace ringd::python {

// Owns a reference, or none.
class Reference {
 public:
  Reference() = default;
  explicit Reference(PyObject* owned) : object_(owned) {}
  static Reference To(PyObject* borrowed) {
    Py_XINCREF(borrowed);
    return Reference(borrowed);
  }
  ~Reference() { Py_XDECREF(object_); }
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// All functions need the GIL. One that fails sets a Python error and returns null, or false.

// (torch.Tensor, torch.strided, torch._C._storage_Use_Count or None): what the functions below work
// with, kept for good. None: memory always counts as shared.
PyObject* SetTorch(PyObject* module, PyObject* arguments);

Reference GradientOf(PyObject* parameter);
bool SetGradient(PyObject* parameter, PyObject* gradient);
// Of a tensor, or of the storage behind one.
bool AddressOf(PyObject* tensor, void*& address);
// In bytes, of all elements.
bool SizeOf(PyObject* tensor, std::uint64_t& bytes);
// Counts changes in place.
bool VersionOf(PyObject* tensor, std::int64_t& version);
// Whether its numbers lie in memory as they are read: contiguous, and not lazily conjugated or
// negated. `complex`: it may be of a complex type, which alone is conjugated.
bool IsAsRead(PyObject* tensor, bool complex, bool& as_read);
// Whether its memory may be another tensor's, too: it is a view, or the memory behind it is larger.
bool IsPart(PyObject* tensor, bool& part);

// Whether only Python refers to it, and nothing of C++'s, such as another `grad` or a graph. Before
// PyTorch 2.10 these do not count among Python's references.
bool IsOfPythonAlone(PyObject* tensor, bool& alone);

// How a tensor's elements lie in memory.
struct TensorForm {
  Reference dtype;
  Reference shape;
  bool complex = false;

  bool Read(PyObject* tensor);
};
// Whether `tensor` is a torch.Tensor itself, of this form, in the host's memory, dense, contiguous,
// not lazily conjugated or negated, and without a graph behind it, so that a copy of its bytes is a
// copy of it.
bool IsPlain(PyObject* tensor, const TensorForm& form, bool& plain);

// The memory behind a tensor, kept to see whether others use it.
struct TensorMemory {
  Reference storage;
  Reference number;

  bool Read(PyObject* tensor);
  // Whether nobody but this and one tensor refers to the memory.
  bool IsUnshared(bool& unshared) const;
};

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_TORCH_TENSORS_H_
