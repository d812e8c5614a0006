// One parameter's way from autograd into the library.
//
// PyTorch calls a hook each time it has accumulated a parameter's gradient. A Python function there
// costs several microseconds for each parameter and step; this one, once it is armed, submits the
// gradient without running Python code. It handles what a training repeats: a gradient of the form
// that was described, in its memory in the arena or fresh from autograd. Everything else is left to
// a Python function, which may arm it again.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_GRADIENT_HOOK_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_GRADIENT_HOOK_H_

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "client/python/extension/torch_tensors.h"
#include "client/ringd.h"

namespace ringd::python {

// So many bytes of a gradient are compared to see whether it was changed through `.data`.
inline constexpr std::size_t kComparedBytes = 8;

// Where the reduced gradient lies.
struct ArenaMemory {
  Reference tensor;  // none: there is no memory yet
  TensorForm form;
  TensorMemory memory;
  void* address = nullptr;

  bool Read(PyObject* arena_tensor);
};

// The operation in flight.
struct Flight {
  Reference source;
  Reference result;
  // p.grad as it was submitted.
  Reference gradient;
  const void* address = nullptr;  // where its elements lay
  std::int64_t version = 0;
  // How many of `first` count; none if the result is written where the gradient is, or if the host
  // can't read it.
  std::size_t compared = 0;
  char first[kComparedBytes] = {};
};

// What the Python object ringd._ringd.GradientHook holds.
//
// Thread safety: guarded by the GIL. TrySubmit gives the GIL up while it waits for room; other
//   hooks may run meanwhile, and nothing else may be done with this one.
// Ownership: owns references to the parameter, the context, its memory in the arena, and, while an
//   operation is in flight, to its tensors.
// Invariants: armed only with memory in the arena; while `operation` is not 0 the Python object is
//   in `pending` and in `in_flight`, unless the program has taken it out there.
// A function that returns false has set a Python error.
struct GradientHook {
  Reference parameter;
  Reference slow;     // the Python function
  Reference pending;  // a dict
  int passes_per_step = 1;
  int passes_left = 1;
  // A weak reference to p.grad after the last pass that was counted and not submitted, and its
  // version then.
  Reference accumulated;
  std::int64_t accumulated_version = 0;
  // The job's, and the numbers that it knows.
  Reference in_flight;  // a set
  unsigned int communicator = 0;
  unsigned int registration = 0;
  Reference context;  // none: not armed
  ArenaMemory arena;
  unsigned long long operation = 0;
  Flight flight;

  enum class Outcome { kSubmitted, kUnusual, kError };
  // In the backward pass: counts, or submits, the gradient of `parameter`. Blocks only while there
  // is no room in the ring. kUnusual: nothing has been submitted or counted, which is left to
  // `slow`. `self`: the Python object.
  Outcome TrySubmit(PyObject* self, PyObject* of);

  // Notes a submitted operation, of which `begun` has the tensors and the version. `compares`: the
  // gradient is in memory that the host can read, and the result is not written there.
  bool Note(PyObject* self, ringd_operation submitted, Flight begun, bool compares);
  void Forget(PyObject* self);
  // After an operation that has ended well: p.grad becomes its result.
  bool Take(PyObject* self);
  // Whether p.grad has been replaced or changed since it was submitted.
  bool WasChanged(bool& changed) const;

  // Whether `gradient` continues what the passes before have accumulated: it is the same tensor,
  // and one more pass has changed it, and nothing else (such as zeroing it).
  bool Continues(PyObject* gradient, bool& continues) const;
  // Counts a pass that submits nothing. `gradient` may be None.
  bool NotePass(PyObject* gradient);

  // Whether the memory in the arena may be overwritten: the program has kept nothing of it, and has
  // not moved the tensor elsewhere.
  bool IsArenaFree(bool& is_free) const;

 private:
  bool IsUsual(PyObject* gradient, bool in_arena, bool& usual) const;
};

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_GRADIENT_HOOK_H_
