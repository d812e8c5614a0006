// Numbers as Python passes them: addresses, operations, registrations; and lists of them.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_NUMBERS_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_NUMBERS_H_

#include <Python.h>

#include <cstdint>
#include <vector>

namespace ringd::python {

// All with the GIL. False with a Python error set if it is no such number, or no such list.

// Unsigned. Of Python's conversions the one that takes addresses apart fastest.
inline bool ReadNumber(PyObject* object, std::uint64_t& number) {
  static_assert(sizeof(unsigned long) == sizeof(std::uint64_t));
  number = PyLong_AsUnsignedLong(object);
  return number != static_cast<std::uint64_t>(-1) || PyErr_Occurred() == nullptr;
}

// An address that ReadNumber has read.
inline void* Pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(
      static_cast<std::uintptr_t>(address));  // NOLINT(performance-no-int-to-ptr)
}

// `method`: of which `list` is the argument.
bool ReadNumbers(const char* method, PyObject* list, std::vector<std::uint64_t>& numbers);

// Puts the numbers into the list, from which others may have taken some meanwhile.
bool WriteNumbers(PyObject* list, const std::vector<std::uint64_t>& numbers);

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_NUMBERS_H_
