#include "client/python/extension/torch_tensors.h"

#include "client/python/extension/numbers.h"

namespace ringd::python {
namespace {

// Guarded by the GIL; null until SetTorch.
struct Torch {
  PyObject* tensor_type;
  PyObject* strided;
  PyObject* storage_use_count;  // null: this release has none
  // Methods of torch.Tensor, called with the tensor.
  PyObject* data_ptr;
  PyObject* is_contiguous;
  PyObject* is_conj;
  PyObject* is_neg;
  PyObject* is_view;
  PyObject* use_count;
  PyObject* untyped_storage;
  // Names of attributes.
  PyObject* grad;
  PyObject* dtype;
  PyObject* is_complex;
  PyObject* layout;
  PyObject* is_cpu;
  PyObject* shape;
  PyObject* requires_grad;
  PyObject* version;
  PyObject* nbytes;
  PyObject* cdata;
};
Torch torch{};

bool IsSet() {
  if (torch.tensor_type != nullptr) return true;
  PyErr_SetString(PyExc_RuntimeError, "set_torch() has not been called");
  return false;
}

// False also if the answer is an error.
bool Truth(PyObject* answer, bool& truth) {
  const Reference owned(answer);
  if (!owned) return false;
  const int value = PyObject_IsTrue(answer);
  truth = value == 1;
  return value >= 0;
}

bool CallForTruth(PyObject* method, PyObject* tensor, bool& truth) {
  return IsSet() && Truth(PyObject_CallFunctionObjArgs(method, tensor, nullptr), truth);
}

bool Number(PyObject* answer, std::uint64_t& number) {
  const Reference owned(answer);
  return owned && ReadNumber(answer, number);
}

bool AttributeIs(PyObject* tensor, PyObject* name, PyObject* expected, bool& same) {
  const Reference found(PyObject_GetAttr(tensor, name));
  same = found.get() == expected;
  return static_cast<bool>(found);
}

}  // namespace

PyObject* SetTorch(PyObject* /*module*/, PyObject* arguments) {
  PyObject* type = nullptr;
  PyObject* strided = nullptr;
  PyObject* use_count = nullptr;
  if (PyArg_ParseTuple(arguments, "OOO:set_torch", &type, &strided, &use_count) == 0) {
    return nullptr;
  }
  Torch made{};
  const std::pair<PyObject**, const char*> methods[] = {
      {&made.data_ptr, "data_ptr"},    {&made.is_contiguous, "is_contiguous"},
      {&made.is_conj, "is_conj"},      {&made.is_neg, "is_neg"},
      {&made.is_view, "_is_view"},     {&made.untyped_storage, "untyped_storage"},
      {&made.use_count, "_use_count"},
  };
  for (const auto& [method, name] : methods) {
    *method = PyObject_GetAttrString(type, name);
    if (*method == nullptr) return nullptr;
  }
  const std::pair<PyObject**, const char*> names[] = {
      {&made.grad, "grad"},        {&made.dtype, "dtype"},
      {&made.layout, "layout"},    {&made.is_cpu, "is_cpu"},
      {&made.shape, "shape"},      {&made.nbytes, "nbytes"},
      {&made.version, "_version"}, {&made.requires_grad, "requires_grad"},
      {&made.cdata, "_cdata"},     {&made.is_complex, "is_complex"},
  };
  for (const auto& [name, text] : names) {
    *name = PyUnicode_InternFromString(text);
    if (*name == nullptr) return nullptr;
  }
  Py_INCREF(type);
  made.tensor_type = type;
  Py_INCREF(strided);
  made.strided = strided;
  if (use_count != Py_None) {
    Py_INCREF(use_count);
    made.storage_use_count = use_count;
  }
  torch = made;
  Py_RETURN_NONE;
}

Reference GradientOf(PyObject* parameter) {
  return IsSet() ? Reference(PyObject_GetAttr(parameter, torch.grad)) : Reference();
}

bool SetGradient(PyObject* parameter, PyObject* gradient) {
  return IsSet() && PyObject_SetAttr(parameter, torch.grad, gradient) == 0;
}

bool AddressOf(PyObject* tensor, void*& address) {
  std::uint64_t number = 0;
  if (!IsSet() || !Number(PyObject_CallFunctionObjArgs(torch.data_ptr, tensor, nullptr), number)) {
    return false;
  }
  address = Pointer(number);
  return true;
}

bool SizeOf(PyObject* tensor, std::uint64_t& bytes) {
  return IsSet() && Number(PyObject_GetAttr(tensor, torch.nbytes), bytes);
}

bool VersionOf(PyObject* tensor, std::int64_t& version) {
  if (!IsSet()) return false;
  const Reference number(PyObject_GetAttr(tensor, torch.version));
  if (!number) return false;
  version = PyLong_AsLongLong(number.get());
  return version != -1 || PyErr_Occurred() == nullptr;
}

bool IsAsRead(PyObject* tensor, bool complex, bool& as_read) {
  bool contiguous = false;
  bool conjugated = false;
  bool negated = false;
  if (!CallForTruth(torch.is_contiguous, tensor, contiguous) ||
      (complex && !CallForTruth(torch.is_conj, tensor, conjugated)) ||
      !CallForTruth(torch.is_neg, tensor, negated)) {
    return false;
  }
  as_read = contiguous && !conjugated && !negated;
  return true;
}

bool IsPart(PyObject* tensor, bool& part) {
  if (!CallForTruth(torch.is_view, tensor, part)) return false;
  if (part) return true;
  std::uint64_t bytes = 0;
  std::uint64_t all = 0;
  if (!SizeOf(tensor, bytes)) return false;
  const Reference storage(PyObject_CallFunctionObjArgs(torch.untyped_storage, tensor, nullptr));
  if (!storage) return false;
  PyObject* const nbytes = PyObject_CallMethodObjArgs(storage.get(), torch.nbytes, nullptr);
  if (!Number(nbytes, all)) return false;
  part = all > bytes;
  return true;
}

bool TensorForm::Read(PyObject* tensor) {
  if (!IsSet()) return false;
  dtype = Reference(PyObject_GetAttr(tensor, torch.dtype));
  if (!dtype || !Truth(PyObject_GetAttr(dtype.get(), torch.is_complex), complex)) return false;
  shape = Reference(PyObject_GetAttr(tensor, torch.shape));
  return static_cast<bool>(shape);
}

bool IsPlain(PyObject* tensor, const TensorForm& form, bool& plain) {
  plain = false;
  if (!IsSet()) return false;
  if (reinterpret_cast<PyObject*>(Py_TYPE(tensor)) != torch.tensor_type) return true;
  bool same = false;
  // First of all the layout: a sparse tensor has no answer to some of the rest.
  if (!AttributeIs(tensor, torch.layout, torch.strided, same)) return false;
  if (!same) return true;
  if (!AttributeIs(tensor, torch.dtype, form.dtype.get(), same)) return false;
  if (!same) return true;
  if (!AttributeIs(tensor, torch.is_cpu, Py_True, same)) return false;
  if (!same) return true;
  const Reference shape(PyObject_GetAttr(tensor, torch.shape));
  if (!shape) return false;
  const int equal = PyObject_RichCompareBool(shape.get(), form.shape.get(), Py_EQ);
  if (equal != 1) return equal == 0;
  bool as_read = false;
  bool has_graph = false;
  if (!IsAsRead(tensor, form.complex, as_read) ||
      !Truth(PyObject_GetAttr(tensor, torch.requires_grad), has_graph)) {
    return false;
  }
  plain = as_read && !has_graph;
  return true;
}

bool IsOfPythonAlone(PyObject* tensor, bool& alone) {
  alone = false;
  std::uint64_t uses = 0;
  if (!IsSet() || !Number(PyObject_CallFunctionObjArgs(torch.use_count, tensor, nullptr), uses)) {
    return false;
  }
  alone = uses == 1;
  return true;
}

bool TensorMemory::Read(PyObject* tensor) {
  if (!IsSet()) return false;
  storage = Reference(PyObject_CallFunctionObjArgs(torch.untyped_storage, tensor, nullptr));
  if (!storage) return false;
  number = Reference(PyObject_GetAttr(storage.get(), torch.cdata));
  return static_cast<bool>(number);
}

bool TensorMemory::IsUnshared(bool& unshared) const {
  unshared = false;
  if (!IsSet()) return false;
  if (torch.storage_use_count == nullptr) return true;
  std::uint64_t uses = 0;
  if (!Number(PyObject_CallFunctionObjArgs(torch.storage_use_count, number.get(), nullptr), uses)) {
    return false;
  }
  unshared = uses == 2;  // the tensor and `storage`
  return true;
}

}  // namespace ringd::python
