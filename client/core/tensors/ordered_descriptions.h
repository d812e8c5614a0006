// The operations of one communicator that matches by order: each in flight has a description of its
// own.
#ifndef RINGD_CLIENT_CORE_TENSORS_ORDERED_DESCRIPTIONS_H_
#define RINGD_CLIENT_CORE_TENSORS_ORDERED_DESCRIPTIONS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/core/tensors/registrations.h"
#include "client/ringd.h"
#include "proto/base/mutex.h"
#include "proto/shm/ordered_operation.h"

namespace ringd::client {

// Registrations of which ringd knows nothing: they last as long as their operation, and are used
// again for later ones.
//
// Thread safety: any thread may call anything.
// Ownership: of the registrations.
class OrderedDescriptions {
 public:
  // `ranks`: the communicator's, `rank` this process's.
  OrderedDescriptions(const std::string& communicator, std::vector<std::int32_t> ranks,
                      std::int32_t rank, const LaneUse& lane);

  // The communicator's name.
  const std::string& communicator() const noexcept { return communicator_; }

  // Checks what the caller says. It is to be given back when its operation has been consumed.
  //   kInvalidArgument: names the field, and what is allowed.
  absl::StatusOr<Registration*> Take(const ringd_collective& collective);
  void GiveBack(Registration& description);
  // Some operation has not been consumed.
  bool AnyTaken() const;

  // What a submission says of it, but for member and place.
  static OrderedDescription WordOf(const Registration& description) noexcept;
  static OrderedScales ScalesOf(const Registration& description) noexcept {
    return {description.description.prescale, description.description.postscale};
  }

 private:
  absl::StatusOr<TensorDescription> Describe(const ringd_collective& collective) const;

  const std::string communicator_;
  const std::string name_;  // what errors call a tensor of it
  const std::vector<std::int32_t> ranks_;
  const std::int32_t highest_rank_;
  const std::int32_t rank_;
  const LaneUse lane_;
  mutable Mutex mutex_;
  std::deque<Registration> all_ ABSL_GUARDED_BY(mutex_);
  std::vector<Registration*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_ORDERED_DESCRIPTIONS_H_
