// The slabs of one GPU, and who still uses them.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_SLABS_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_SLABS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/cuda_context.h"
#include "backends/cuda/device_slab.h"
#include "backends/device/device_bucket.h"
#include "backends/device/device_event.h"
#include "proto/base/clock.h"

namespace ringd {

// Thread safety: one thread. Ownership: of the slabs.
class DeviceSlabs {
 public:
  // `setting` says how large slabs are, for messages. `exports`: for another process, too.
  DeviceSlabs(std::string setting, bool exports)
      : setting_(std::move(setting)), exports_(exports) {}

  // Makes a slab. No answer: there is no memory for it, so it waits; AdvanceWaiting answers.
  std::optional<DeviceSlabCreated> Create(std::shared_ptr<const CudaContext> context,
                                          DeviceSlabId id, std::size_t bytes,
                                          Clock::time_point now);
  // Tries those that wait again, now and then. The first answer that there is.
  std::optional<DeviceSlabCreated> AdvanceWaiting(Clock::time_point now);
  // Ends the waiting of that one, or of the first: what to answer.
  std::optional<DeviceSlabCreated> Cancel(DeviceSlabId id, const absl::Status& status);
  std::optional<DeviceSlabCreated> CancelFirst(const absl::Status& status);
  bool has_waiting() const noexcept { return !waiting_.empty(); }

  // What a rank that died had, and its engine, is free when both have ended, and an engine has
  // DeviceThread::kStopPatience for that.
  static constexpr std::chrono::seconds kMemoryPatience{5};
  static constexpr std::chrono::milliseconds kMemoryPause{20};

  // Null: not there, or on its way out.
  const DeviceSlab* Find(DeviceSlabId id) const;
  // The same for one on its way out, too.
  const DeviceSlab* FindAny(DeviceSlabId id) const;

  // A bucket's work on the GPU names the slab, from Use to Unuse. Precondition: it is there.
  void Use(DeviceSlabId id);
  void Unuse(DeviceSlabId id);

  // It is registered with a communicator, from AddRegistration to RemoveRegistration: it stays so
  // long. Precondition: it is there.
  void AddRegistration(DeviceSlabId id);
  void RemoveRegistration(DeviceSlabId id);
  // Whether nothing keeps it but registrations. Precondition: it is there.
  bool IsLeaving(DeviceSlabId id) const;

  // From now on Find does not know it. False: it is not there, or has been retired before.
  bool Retire(DeviceSlabId id);
  // Gives back those that are retired, not in use and not registered, and returns them.
  std::vector<DeviceSlabId> Sweep();

  // Gives all back. Precondition: the GPU is done with them.
  void Clear() { entries_.clear(); }
  // Forgets all without giving anything back: the GPU may still work on them.
  void Abandon();
  // Likewise, and streams that wait for results go on, though none come.
  void LeaveBehind();

 private:
  struct Entry {
    DeviceSlab slab;
    std::uint64_t uses = 0;
    std::uint64_t registrations = 0;
    bool is_retired = false;
  };
  struct Waiting {
    std::shared_ptr<const CudaContext> context;
    DeviceSlabId id;
    std::size_t bytes = 0;
    Clock::time_point deadline;
    Clock::time_point next_try;
  };

  // As Create, once; no answer only before the deadline.
  std::optional<DeviceSlabCreated> Try(const Waiting& wanted, Clock::time_point now);

  const std::string setting_;
  const bool exports_;
  std::vector<Waiting> waiting_;
  std::map<DeviceSlabId, std::unique_ptr<Entry>> entries_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_SLABS_H_
