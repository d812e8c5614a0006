// A UCX worker's address as nodes exchange it.
#ifndef RINGD_BACKENDS_UCX_UCX_ADDRESS_H_
#define RINGD_BACKENDS_UCX_UCX_ADDRESS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ringd {

// UCX trusts the bytes it is given; so ours carry a mark and a checksum around them.
std::string WrapWorkerAddress(absl::string_view worker_address);

// The inverse; nothing if the bytes were not made by WrapWorkerAddress.
std::optional<absl::string_view> UnwrapWorkerAddress(absl::string_view address);

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_ADDRESS_H_
