// The slabs of one GPU, and who still uses them.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_SLABS_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_SLABS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backends/cuda/device_slab.h"
#include "backends/device/device_bucket.h"

namespace ringd {

// Thread safety: one thread. Ownership: of the slabs.
class DeviceSlabs {
 public:
  // False: the id is taken.
  bool Add(DeviceSlabId id, DeviceSlab slab);

  // Null: not there, or on its way out.
  const DeviceSlab* Find(DeviceSlabId id) const;
  // The same for one on its way out, too.
  const DeviceSlab* FindAny(DeviceSlabId id) const;

  // A bucket's work on the GPU names the slab, from Use to Unuse. Precondition: it is there.
  void Use(DeviceSlabId id);
  void Unuse(DeviceSlabId id);

  // From now on Find does not know it. False: it is not there, or has been retired before.
  bool Retire(DeviceSlabId id);
  // Gives back those that are retired and not in use, and returns them.
  std::vector<DeviceSlabId> Sweep();

  // Gives all back. Precondition: the GPU is done with them.
  void Clear() { entries_.clear(); }
  // Forgets all without giving anything back: the GPU may still work on them.
  void Abandon();

 private:
  struct Entry {
    DeviceSlab slab;
    std::uint64_t uses = 0;
    bool is_retired = false;
  };

  std::map<DeviceSlabId, std::unique_ptr<Entry>> entries_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_SLABS_H_
