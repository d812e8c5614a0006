// The tensors that this context has described to ringd.
#ifndef RINGD_CLIENT_CORE_TENSORS_REGISTRATIONS_H_
#define RINGD_CLIENT_CORE_TENSORS_REGISTRATIONS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "client/core/tensors/submission_count.h"
#include "client/core/tensors/tensor_description.h"
#include "client/ringd.h"
#include "proto/base/mutex.h"

namespace ringd::client {

// Ownership: Registrations. Immutable after creation but for submissions.
struct Registration {
  TensorDescription description;
  RegisteredNumbers numbers;
  // Copied out of the description, for the hot path.
  std::uint64_t bytes = 0;
  std::uint64_t element_count = 0;
  std::uint32_t element_bytes = 1;
  bool sends = true;     // this rank's source is read
  bool receives = true;  // this rank's destination is written
  // The description's, on the fast path; the same at all ranks.
  std::uint64_t signature = 0;
  // Of jobs that have a fast path.
  SubmissionCount submissions;
};

// Numbers registrations 1, 2, ... in the order in which they became known, and finds them by number
// without a lock, by description with one.
//
// Thread safety: any thread may call anything.
// Invariant: a number, once given, stands for the same description as long as the context lives.
class Registrations {
 public:
  Registrations() = default;
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;
  ~Registrations();

  // The number of an equal description, or 0.
  ringd_registration FindEqual(const std::string& key) const;

  // Adds what ringd has accepted as `numbers`; `rank` is this process's. If an equal description
  // has been added meanwhile, gives its number. 0: there are no numbers left.
  ringd_registration Add(TensorDescription description, const RegisteredNumbers& numbers,
                         std::int32_t rank);

  // Null if there is no such number.
  Registration* Find(ringd_registration number) noexcept;

 private:
  // Chunk k holds kFirstChunk << k entries, so that nothing ever moves and a number's place is
  // arithmetic.
  static constexpr std::uint32_t kFirstChunkBits = 6;
  static constexpr std::uint32_t kChunkCount = 20;
  struct Place {
    std::uint32_t chunk;
    std::uint32_t index;
  };
  static Place PlaceOf(std::uint32_t position) noexcept;

  mutable Mutex mutex_;
  std::unordered_map<std::string, ringd_registration> by_key_ ABSL_GUARDED_BY(mutex_);
  // Written under mutex_; release of count_ pairs with the acquire in Find: who sees a number in range
  // sees its chunk and its registration.
  std::atomic<std::uint32_t> count_{0};
  std::array<std::atomic<std::unique_ptr<Registration>*>, kChunkCount> chunks_{};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_REGISTRATIONS_H_
