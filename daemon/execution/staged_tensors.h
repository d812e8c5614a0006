// The tensors of a bucket whose ranks copy them into the arena and out of it while the bucket is
// under way.
#ifndef RINGD_DAEMON_EXECUTION_STAGED_TENSORS_H_
#define RINGD_DAEMON_EXECUTION_STAGED_TENSORS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/execution/bucket.h"
#include "proto/base/doorbell.h"
#include "proto/shm/staging_progress.h"

namespace ringd {

// One local rank's tensor that is staged in pieces (proto/shm/staging_progress.h).
struct StagedBuffer {
  std::size_t tensor = 0;  // position in the bucket
  std::size_t member = 0;
  StagingProgress* progress = nullptr;
  Doorbell* waiters = nullptr;
  bool source = false;  // in pieces
  bool result = false;
};

// Says which ranges of the bucket can be read, and tells the ranks which pieces of their results
// are final. Ranges are [begin, end) in bytes of the bucket.
//
// Thread safety: any thread may call anything; of one range and member NoteResults is called once.
// Ownership: borrows the sessions' memory.
class StagedTensors {
 public:
  // `buffers` in the order of the bucket's tensors, of a kind without parts.
  StagedTensors(const BucketLayout& layout, const std::vector<StagedBuffer>& buffers);

  // All that the ranks give to the range is in their arenas.
  bool SourcesReady(std::size_t begin, std::size_t end) const noexcept;

  // The range's results are in the arenas of members [first, last), and stay as they are.
  void NoteResults(std::size_t begin, std::size_t end, std::size_t first,
                   std::size_t last) noexcept;

 private:
  struct Entry {
    std::size_t begin;  // in the bucket
    std::size_t bytes;
    StagedBuffer buffer;
    // Of each piece of the result, bytes that are not there yet. Null if it does not come in
    // pieces.
    std::unique_ptr<std::atomic<std::uint64_t>[]> missing;
  };

  // Calls visit(entry, from, to) for what overlaps the range, in bytes of the entry's tensor, until
  // one says false.
  template <typename Visit>
  bool VisitOverlaps(std::size_t begin, std::size_t end, Visit visit) const noexcept;

  std::vector<Entry> entries_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_STAGED_TENSORS_H_
