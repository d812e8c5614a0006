#include "client/python/extension/submission.h"

namespace ringd::python {
namespace {

// Whether submitting copies so much that other threads should run meanwhile.
bool CopiesMuch(const ContextObject& self, const Submission& submission) {
  const auto bytes = self.tensor_bytes->find(submission.registration);
  if (bytes == self.tensor_bytes->end() || bytes->second < kCopiedWithGil) return false;
  return ringd_arena_contains(self.context, submission.source, bytes->second) == 0;
}

}  // namespace

ringd_status Submit(const ContextObject& self, const Submission& submission, bool may_wait,
                    ringd_operation& operation) {
  ringd_context* const context = self.context;
  const auto [registration, source, destination] = submission;
  ringd_status status = RINGD_OK;
  if (CopiesMuch(self, submission)) {
    const WithoutGil without_gil;
    status = ringd_try_submit(context, registration, source, destination, &operation);
  } else {
    status = ringd_try_submit(context, registration, source, destination, &operation);
  }
  if (status == RINGD_RESOURCE_EXHAUSTED && may_wait) {
    // Only now may it block, so that the usual call keeps the GIL.
    const WithoutGil without_gil;
    status = ringd_submit(context, registration, source, destination, &operation);
  }
  return status;
}

}  // namespace ringd::python
