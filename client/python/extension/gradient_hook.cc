#include "client/python/extension/gradient_hook.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client/python/extension/context_object.h"
#include "client/python/extension/submission.h"

namespace ringd::python {
namespace {

// An error before anything has been submitted is the slow way's to tell, if it meets it too.
GradientHook::Outcome Unusual() {
  PyErr_Clear();
  return GradientHook::Outcome::kUnusual;
}

// Whether p.grad is the result already, or lies where it does.
bool IsResult(PyObject* gradient, PyObject* result, bool& same) {
  same = gradient == result;
  if (same || gradient == Py_None) return true;
  void* here = nullptr;
  void* there = nullptr;
  if (!AddressOf(gradient, here) || !AddressOf(result, there)) return false;
  return here != there || IsAsRead(gradient, /*complex=*/true, same);
}

}  // namespace

bool ArenaMemory::Read(PyObject* arena_tensor) {
  if (!form.Read(arena_tensor) || !memory.Read(arena_tensor) || !AddressOf(arena_tensor, address)) {
    return false;
  }
  tensor = Reference::To(arena_tensor);
  return true;
}

bool GradientHook::Continues(PyObject* gradient, bool& continues) const {
  continues = accumulated && PyWeakref_GetObject(accumulated.get()) == gradient;
  if (!continues) return true;
  std::int64_t version = 0;
  if (!VersionOf(gradient, version)) return false;
  continues = version == accumulated_version + 1;
  // A part counts the changes of all that lies in the same memory.
  return continues || IsPart(gradient, continues);
}

bool GradientHook::NotePass(PyObject* gradient) {
  Reference reference;
  if (gradient != Py_None) {
    reference = Reference(PyWeakref_NewRef(gradient, nullptr));
    if (!reference || !VersionOf(gradient, accumulated_version)) return false;
  }
  accumulated = std::move(reference);
  --passes_left;
  return true;
}

bool GradientHook::IsArenaFree(bool& is_free) const {
  is_free = false;
  if (!arena.tensor || Py_REFCNT(arena.tensor.get()) != 1) return true;
  bool alone = false;
  if (!IsOfPythonAlone(arena.tensor.get(), alone)) return false;
  if (!alone) return true;
  // share_memory() gives the tensor memory elsewhere, and this one back.
  void* address = nullptr;
  if (!AddressOf(arena.tensor.get(), address)) return false;
  return address != arena.address || arena.memory.IsUnshared(is_free);
}

// Whether the gradient is where it is reduced, or can be reduced from where it is.
bool GradientHook::IsUsual(PyObject* gradient, bool in_arena, bool& usual) const {
  if (!IsPlain(gradient, arena.form, usual)) return false;
  if (!usual) return true;
  if (!in_arena) return IsArenaFree(usual);
  void* address = nullptr;
  if (!AddressOf(gradient, address)) return false;
  usual = address == arena.address;  // else it was changed through `.data`, or share_memory()
  return true;
}

GradientHook::Outcome GradientHook::TrySubmit(PyObject* self, PyObject* of) {
  if (!context || of != parameter.get() || operation != 0 || passes_left < 1) {
    return Outcome::kUnusual;
  }
  const ContextObject& target = *Self(context.get());
  if (target.ended) return Outcome::kUnusual;
  Reference gradient = GradientOf(of);
  if (!gradient) return Unusual();
  if (passes_left < passes_per_step) {
    bool continues = false;
    if (!Continues(gradient.get(), continues) || !continues) return Unusual();
  }
  const bool in_arena = gradient.get() == arena.tensor.get();
  bool usual = false;
  if (!IsUsual(gradient.get(), in_arena, usual) || !usual) return Unusual();
  if (passes_left > 1) return NotePass(gradient.get()) ? Outcome::kSubmitted : Outcome::kError;
  Flight begun;
  if (!VersionOf(gradient.get(), begun.version)) return Unusual();
  // Accumulated outside the arena: perhaps in a buffer of the program's, which it goes on to use.
  bool part = false;
  if (!in_arena && begun.version != 0 && (!IsPart(gradient.get(), part) || part)) return Unusual();
  Submission submission{registration, arena.address, arena.address};
  if (!in_arena && !AddressOf(gradient.get(), submission.source)) return Unusual();
  ringd_operation submitted = 0;
  // It fails, too, if the registration has been given back, or went with its process set.
  if (Submit(target, submission, true, submitted) != RINGD_OK) {
    // A signal's handler has raised while it waited: that is nobody else's to tell.
    return PyErr_Occurred() != nullptr ? Outcome::kError : Unusual();
  }
  passes_left = 0;
  accumulated = Reference();
  begun.source = Reference::To(gradient.get());
  begun.result = Reference::To(arena.tensor.get());
  begun.gradient = std::move(gradient);
  return Note(self, submitted, std::move(begun), !in_arena) ? Outcome::kSubmitted : Outcome::kError;
}

bool GradientHook::Note(PyObject* self, ringd_operation submitted, Flight begun, bool compares) {
  operation = submitted;
  flight = std::move(begun);
  if (PyDict_SetItem(pending.get(), self, Py_None) != 0 ||
      (in_flight && PySet_Add(in_flight.get(), self) != 0)) {
    return false;
  }
  void* address = nullptr;
  std::uint64_t bytes = 0;
  if (!AddressOf(flight.gradient.get(), address)) return false;
  flight.address = address;
  if (!compares) return true;
  if (!SizeOf(flight.gradient.get(), bytes)) return false;
  flight.compared = std::min<std::uint64_t>(bytes, kComparedBytes);
  std::memcpy(flight.first, address, flight.compared);
  return true;
}

void GradientHook::Forget(PyObject* self) {
  operation = 0;
  // Taken out first: the last reference to a tensor may run any code.
  const Flight ended = std::exchange(flight, Flight{});
  if (in_flight && PySet_Discard(in_flight.get(), self) < 0) PyErr_Clear();
}

bool GradientHook::Take(PyObject* self) {
  const Reference result = Reference::To(flight.result.get());
  if (!result) {
    PyErr_SetString(PyExc_ValueError, "nothing has been submitted");
    return false;
  }
  Forget(self);
  const Reference gradient = GradientOf(parameter.get());
  bool same = false;
  if (!gradient || !IsResult(gradient.get(), result.get(), same)) return false;
  return same || SetGradient(parameter.get(), result.get());
}

bool GradientHook::WasChanged(bool& changed) const {
  const Reference gradient = GradientOf(parameter.get());
  if (!gradient) return false;
  changed = !flight.gradient || gradient.get() != flight.gradient.get();
  if (changed) return true;
  void* address = nullptr;
  if (!AddressOf(gradient.get(), address)) return false;
  // Through `.data`, which counts no change.
  changed = address != flight.address;
  if (changed) return true;
  std::int64_t version = 0;
  if (!VersionOf(gradient.get(), version)) return false;
  if (version != flight.version) {
    // A part counts the changes of all that lies in the same memory.
    bool part = false;
    if (!IsPart(gradient.get(), part)) return false;
    changed = !part;
  }
  if (changed || flight.compared == 0) return true;
  std::uint64_t bytes = 0;
  if (!SizeOf(gradient.get(), bytes)) return false;
  changed = bytes < flight.compared || std::memcmp(address, flight.first, flight.compared) != 0;
  return true;
}

}  // namespace ringd::python
