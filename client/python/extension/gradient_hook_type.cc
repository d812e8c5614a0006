#include "client/python/extension/gradient_hook_type.h"

// After Python.h.
#include <structmember.h>

#include <cstddef>
#include <new>
#include <utility>

#include "client/python/extension/gradient_hook.h"
#include "client/python/extension/torch_tensors.h"

namespace ringd::python {
namespace {

struct HookObject {
  PyObject_HEAD GradientHook hook;
};

// Guarded by the GIL; set once.
PyObject* context_type = nullptr;

GradientHook& Hook(PyObject* self) { return reinterpret_cast<HookObject*>(self)->hook; }

PyObject* Call(PyObject* self, PyObject* arguments, PyObject* keywords) {
  if (PyTuple_Size(arguments) != 1 || (keywords != nullptr && PyDict_Size(keywords) != 0)) {
    PyErr_SetString(PyExc_TypeError, "a gradient's hook takes the parameter");
    return nullptr;
  }
  PyObject* const parameter = PyTuple_GetItem(arguments, 0);
  switch (Hook(self).TrySubmit(self, parameter)) {
    case GradientHook::Outcome::kSubmitted:
      Py_RETURN_NONE;
    case GradientHook::Outcome::kError:
      return nullptr;
    case GradientHook::Outcome::kUnusual:
      break;
  }
  return PyObject_CallFunctionObjArgs(Hook(self).slow.get(), parameter, nullptr);
}

PyObject* Enter(PyObject* self, PyObject* arguments) {
  unsigned int communicator = 0;
  PyObject* in_flight = nullptr;
  if (PyArg_ParseTuple(arguments, "IO:enter", &communicator, &in_flight) == 0) return nullptr;
  if (PySet_Check(in_flight) == 0) {
    PyErr_SetString(PyExc_TypeError, "enter takes the set of what is in flight");
    return nullptr;
  }
  GradientHook& hook = Hook(self);
  hook.Forget(self);
  hook.communicator = communicator;
  hook.in_flight = Reference::To(in_flight);
  hook.context = Reference();
  const ArenaMemory former = std::exchange(hook.arena, ArenaMemory{});
  Py_RETURN_NONE;
}

PyObject* SetArena(PyObject* self, PyObject* tensor) {
  Hook(self).context = Reference();
  ArenaMemory arena;
  if (tensor != Py_None && !arena.Read(tensor)) return nullptr;
  const ArenaMemory former = std::exchange(Hook(self).arena, std::move(arena));
  Py_RETURN_NONE;
}

PyObject* Arm(PyObject* self, PyObject* arguments) {
  PyObject* context = nullptr;
  unsigned int registration = 0;
  if (PyArg_ParseTuple(arguments, "OI:arm", &context, &registration) == 0) return nullptr;
  GradientHook& hook = Hook(self);
  if (reinterpret_cast<PyObject*>(Py_TYPE(context)) != context_type || !hook.arena.tensor) {
    PyErr_SetString(PyExc_ValueError, "arm takes a context, after set_arena");
    return nullptr;
  }
  hook.context = Reference::To(context);
  hook.registration = registration;
  Py_RETURN_NONE;
}

PyObject* ArenaIsFree(PyObject* self, PyObject* /*unused*/) {
  bool is_free = false;
  if (!Hook(self).IsArenaFree(is_free)) return nullptr;
  return PyBool_FromLong(static_cast<long>(is_free));
}

PyObject* CountPass(PyObject* self, PyObject* gradient) {
  if (!Hook(self).NotePass(gradient)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* Continues(PyObject* self, PyObject* gradient) {
  bool continues = false;
  if (!Hook(self).Continues(gradient, continues)) return nullptr;
  return PyBool_FromLong(static_cast<long>(continues));
}

PyObject* RestartCount(PyObject* self, PyObject* /*unused*/) {
  GradientHook& hook = Hook(self);
  hook.passes_left = hook.passes_per_step;
  hook.accumulated = Reference();
  Py_RETURN_NONE;
}

PyObject* Note(PyObject* self, PyObject* arguments) {
  unsigned long long operation = 0;
  PyObject* source = nullptr;
  PyObject* result = nullptr;
  PyObject* gradient = nullptr;
  int on_host = 1;
  if (PyArg_ParseTuple(arguments, "KOOO|p:note", &operation, &source, &result, &gradient,
                       &on_host) == 0) {
    return nullptr;
  }
  void* read = nullptr;
  void* written = nullptr;
  Flight begun;
  begun.source = Reference::To(source);
  begun.result = Reference::To(result);
  begun.gradient = Reference::To(gradient);
  if (!AddressOf(gradient, read) || !AddressOf(result, written) ||
      !VersionOf(gradient, begun.version) ||
      !Hook(self).Note(self, operation, std::move(begun), on_host != 0 && read != written)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* WasChanged(PyObject* self, PyObject* /*unused*/) {
  bool changed = false;
  if (!Hook(self).WasChanged(changed)) return nullptr;
  return PyBool_FromLong(static_cast<long>(changed));
}

PyObject* Take(PyObject* self, PyObject* /*unused*/) {
  if (!Hook(self).Take(self)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* Forget(PyObject* self, PyObject* /*unused*/) {
  Hook(self).Forget(self);
  Py_RETURN_NONE;
}

PyObject* New(PyTypeObject* type, PyObject* /*arguments*/, PyObject* /*keywords*/) {
  PyObject* const self = PyType_GenericAlloc(type, 0);
  if (self != nullptr) new (&Hook(self)) GradientHook();
  return self;
}

int Initialize(PyObject* self, PyObject* arguments, PyObject* /*keywords*/) {
  PyObject* parameter = nullptr;
  PyObject* slow = nullptr;
  PyObject* pending = nullptr;
  int passes = 0;
  if (PyArg_ParseTuple(arguments, "OOOi:GradientHook", &parameter, &slow, &pending, &passes) == 0) {
    return -1;
  }
  if (PyDict_Check(pending) == 0 || passes < 1) {
    PyErr_SetString(PyExc_TypeError, "GradientHook takes a dict, and a number of passes above 0");
    return -1;
  }
  GradientHook& hook = Hook(self);
  hook.parameter = Reference::To(parameter);
  hook.slow = Reference::To(slow);
  hook.pending = Reference::To(pending);
  hook.passes_per_step = hook.passes_left = passes;
  return 0;
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  const GradientHook& hook = Hook(self);
  const ArenaMemory& arena = hook.arena;
  const Flight& flight = hook.flight;
  Py_VISIT(Py_TYPE(self));
  for (const Reference* const reference :
       {&hook.parameter, &hook.slow, &hook.pending, &hook.accumulated, &hook.in_flight,
        &hook.context, &arena.tensor, &arena.form.dtype, &arena.form.shape, &arena.memory.storage,
        &arena.memory.number, &flight.source, &flight.result, &flight.gradient}) {
    Py_VISIT(reference->get());
  }
  return 0;
}

int Clear(PyObject* self) {
  const GradientHook former = std::exchange(Hook(self), GradientHook{});
  return 0;
}

void Deallocate(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Hook(self).~GradientHook();
  PyTypeObject* const type = Py_TYPE(self);
  const auto free_memory = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  free_memory(self);
  Py_DECREF(type);
}

}  // namespace

PyObject* MakeGradientHookType(PyObject* type_of_contexts) {
  context_type = type_of_contexts;
  // Python keeps pointers to both.
  static PyMethodDef methods[] = {
      {"enter", Enter, METH_VARARGS, "(communicator, in_flight): for the operations of a job."},
      {"set_arena", SetArena, METH_O, "The tensor that results are written to, or None."},
      {"arm", Arm, METH_VARARGS, "(context, registration): from now on without Python code."},
      {"arena_is_free", ArenaIsFree, METH_NOARGS, "Whether the program has kept nothing of it."},
      {"count_pass", CountPass, METH_O, "(gradient or None): a pass that submits nothing."},
      {"continues", Continues, METH_O, "Whether it is what passes have accumulated."},
      {"restart_count", RestartCount, METH_NOARGS, "All passes are left again."},
      {"note", Note, METH_VARARGS,
       "(operation, source, result, gradient, on_host=True): in flight."},
      {"was_changed", WasChanged, METH_NOARGS, "Whether p.grad is not as submitted."},
      {"take", Take, METH_NOARGS, "The operation has ended well: p.grad becomes its result."},
      {"forget", Forget, METH_NOARGS, "The operation has ended."},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyMemberDef members[] = {
      {"parameter", T_OBJECT, offsetof(HookObject, hook.parameter), READONLY, nullptr},
      {"communicator", T_UINT, offsetof(HookObject, hook.communicator), READONLY, nullptr},
      {"passes_per_step", T_INT, offsetof(HookObject, hook.passes_per_step), 0, nullptr},
      {"passes_left", T_INT, offsetof(HookObject, hook.passes_left), 0, nullptr},
      {"operation", T_ULONGLONG, offsetof(HookObject, hook.operation), 0, nullptr},
      {"gradient", T_OBJECT, offsetof(HookObject, hook.flight.gradient), READONLY, nullptr},
      {"result", T_OBJECT, offsetof(HookObject, hook.flight.result), READONLY, nullptr},
      {"arena", T_OBJECT, offsetof(HookObject, hook.arena.tensor), READONLY, nullptr},
      {"arena_address", T_ULONGLONG, offsetof(HookObject, hook.arena.address), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(New)},
      {Py_tp_init, reinterpret_cast<void*>(Initialize)},
      {Py_tp_dealloc, reinterpret_cast<void*>(Deallocate)},
      {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(Clear)},
      {Py_tp_call, reinterpret_cast<void*>(Call)},
      {Py_tp_methods, methods},
      {Py_tp_members, members},
      {0, nullptr},
  };
  static PyType_Spec spec = {"ringd._ringd.GradientHook", sizeof(HookObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  return PyType_FromSpec(&spec);
}

}  // namespace ringd::python
