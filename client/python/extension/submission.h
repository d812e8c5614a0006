// Submitting through a context while Python holds the GIL.
#ifndef RINGD_CLIENT_PYTHON_EXTENSION_SUBMISSION_H_
#define RINGD_CLIENT_PYTHON_EXTENSION_SUBMISSION_H_

#include <cstdint>

#include "client/python/extension/context_object.h"
#include "client/ringd.h"

namespace ringd::python {

// Copies below this cost less than letting another thread run and getting the interpreter back.
inline constexpr std::uint64_t kCopiedWithGil = std::uint64_t{64} << 10;

// What a submission is called with.
struct Submission {
  ringd_registration registration = 0;
  void* source = nullptr;
  void* destination = nullptr;
};

// Submits with the GIL, which it gives up while much is copied or there is no room. Fails as
// ringd_try_submit; with `may_wait` as ringd_submit, and then it blocks until there is room.
ringd_status Submit(const ContextObject& self, const Submission& submission, bool may_wait,
                    ringd_operation& operation);

}  // namespace ringd::python

#endif  // RINGD_CLIENT_PYTHON_EXTENSION_SUBMISSION_H_
