#include "client/python/extension/numbers.h"

namespace ringd::python {

bool ReadNumbers(const char* method, PyObject* list, std::vector<std::uint64_t>& numbers) {
  if (PyList_Check(list) == 0) {
    PyErr_Format(PyExc_TypeError, "%s takes a list of numbers, got %R", method, Py_TYPE(list));
    return false;
  }
  numbers.clear();
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) {
    std::uint64_t number = 0;
    if (!ReadNumber(PyList_GetItem(list, i), number)) return false;
    numbers.push_back(number);
  }
  return true;
}

bool WriteNumbers(PyObject* list, const std::vector<std::uint64_t>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto place = static_cast<Py_ssize_t>(i);
    if (place >= PyList_Size(list)) break;
    PyObject* number = PyLong_FromUnsignedLongLong(numbers[i]);
    if (number == nullptr || PyList_SetItem(list, place, number) != 0) return false;
  }
  return true;
}

}  // namespace ringd::python
