#include "client/python/extension/tensor_list.h"

namespace ringd::python {
namespace {

constexpr Py_ssize_t kLeastFields = 8;
constexpr Py_ssize_t kMostFields = 10;  // with the communicator and the memory

// Fields read with PyErr_Occurred as the only sign of failure: the caller asks once at the end.
std::int32_t IntegerField(PyObject* tuple, Py_ssize_t index) {
  PyObject* item = PyTuple_GetItem(tuple, index);
  const long value = item == nullptr ? -1 : PyLong_AsLong(item);
  if (value > INT32_MAX || value < INT32_MIN) {
    PyErr_SetString(PyExc_OverflowError, "a field of a tensor's description is out of range");
    return -1;
  }
  return static_cast<std::int32_t>(value);
}

double NumberField(PyObject* tuple, Py_ssize_t index) {
  PyObject* item = PyTuple_GetItem(tuple, index);
  return item == nullptr ? -1.0 : PyFloat_AsDouble(item);
}

bool ReadName(PyObject* item, std::string& name) {
  Py_ssize_t size = 0;
  const char* text = item == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(item, &size);
  if (text == nullptr) return false;
  name.assign(text, static_cast<std::size_t>(size));
  if (name.find('\0') != std::string::npos) {
    PyErr_SetString(PyExc_ValueError, "a tensor's name contains a null character");
    return false;
  }
  return true;
}

bool ReadShape(PyObject* item, std::vector<std::int64_t>& shape) {
  // torch.Size is a tuple too.
  if (item == nullptr || !PyTuple_Check(item)) {
    if (item != nullptr)
      PyErr_SetString(PyExc_TypeError, "a tensor's shape must be a tuple of int");
    return false;
  }
  const Py_ssize_t dimensions = PyTuple_Size(item);
  shape.reserve(static_cast<std::size_t>(dimensions));
  for (Py_ssize_t i = 0; i < dimensions; ++i) {
    const long long extent = PyLong_AsLongLong(PyTuple_GetItem(item, i));
    if (extent == -1 && PyErr_Occurred() != nullptr) return false;
    shape.push_back(extent);
  }
  return true;
}

std::uint64_t ElementBytes(std::int32_t data_type) noexcept {
  switch (data_type) {
    case RINGD_UINT16:
    case RINGD_INT16:
    case RINGD_FLOAT16:
    case RINGD_BFLOAT16:
      return 2;
    case RINGD_UINT32:
    case RINGD_INT32:
    case RINGD_FLOAT32:
      return 4;
    case RINGD_UINT64:
    case RINGD_INT64:
    case RINGD_FLOAT64:
      return 8;
    default:
      return 1;
  }
}

}  // namespace

bool TensorList::Parse(PyObject* list) {
  const Py_ssize_t count = PySequence_Size(list);
  if (count < 0) return false;
  tensors_.resize(static_cast<std::size_t>(count));
  names_.resize(tensors_.size());
  shapes_.resize(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    PyObject* tuple = PySequence_GetItem(list, static_cast<Py_ssize_t>(i));
    const bool parsed = tuple != nullptr && ParseOne(tuple, i);
    Py_XDECREF(tuple);
    if (!parsed) return false;
  }
  return true;
}

bool TensorList::ParseOne(PyObject* tuple, std::size_t index) {
  const Py_ssize_t fields = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : 0;
  if (fields < kLeastFields || fields > kMostFields) {
    PyErr_SetString(PyExc_TypeError,
                    "a tensor is described by a tuple (name, kind, data_type, op, shape, prescale, "
                    "postscale, root_rank[, communicator[, memory]])");
    return false;
  }
  ringd_tensor& tensor = tensors_[index];
  tensor.struct_size = sizeof(ringd_tensor);
  if (!ReadName(PyTuple_GetItem(tuple, 0), names_[index])) return false;
  tensor.name = names_[index].c_str();
  if (!ReadShape(PyTuple_GetItem(tuple, 4), shapes_[index])) return false;
  tensor.dimensions = static_cast<std::int32_t>(shapes_[index].size());
  tensor.shape = shapes_[index].data();
  tensor.kind = IntegerField(tuple, 1);
  if (PyErr_Occurred() != nullptr) return false;
  tensor.data_type = IntegerField(tuple, 2);
  if (PyErr_Occurred() != nullptr) return false;
  tensor.op = IntegerField(tuple, 3);
  if (PyErr_Occurred() != nullptr) return false;
  tensor.prescale = NumberField(tuple, 5);
  if (PyErr_Occurred() != nullptr) return false;
  tensor.postscale = NumberField(tuple, 6);
  if (PyErr_Occurred() != nullptr) return false;
  tensor.root_rank = IntegerField(tuple, 7);
  if (PyErr_Occurred() != nullptr) return false;
  if (fields > kLeastFields) {
    tensor.communicator = static_cast<ringd_communicator>(IntegerField(tuple, 8));
    if (PyErr_Occurred() != nullptr) return false;
  }
  if (fields == kMostFields) tensor.memory = IntegerField(tuple, 9);
  return PyErr_Occurred() == nullptr;
}

std::uint64_t TensorList::BytesOf(std::size_t index) const noexcept {
  if (tensors_[index].kind == RINGD_BARRIER) return 0;
  std::uint64_t bytes = ElementBytes(tensors_[index].data_type);
  for (const std::int64_t extent : shapes_[index]) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

}  // namespace ringd::python
