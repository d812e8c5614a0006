// A one-node job's group, and the test in the place of its ranks.
#ifndef RINGD_TESTS_DAEMON_LANES_NODE_LOCAL_JOB_H_
#define RINGD_TESTS_DAEMON_LANES_NODE_LOCAL_JOB_H_

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/lanes/node/local_group.h"
#include "proto/attach/handshake.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/shm/in_flight_index.h"
#include "proto/shm/job_segment.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"

namespace ringd {

struct LocalJob {
  explicit LocalJob(std::size_t count) {
    std::vector<std::int32_t> numbers;
    std::vector<std::shared_ptr<Session>> sessions;
    for (std::size_t m = 0; m < count; ++m) {
      ranks.push_back(std::make_unique<AttachedRank>());
      sessions.push_back(ranks.back()->session);
      numbers.push_back(static_cast<std::int32_t>(m + 20));
    }
    auto created = LocalGroup::Create("job", numbers, sessions);
    REQUIRE(created.ok());
    group = *std::move(created);
    UniqueFd fd;
    const auto notice = ranks[0]->Receive<JobSegmentNotice>(NoticeKind::kJobSegment, fd);
    auto mapped = MemoryMapping::Map(fd.get(), notice.segment_bytes);
    REQUIRE(mapped.ok());
    segment = *std::move(mapped);
    view = JobSegmentView(segment.data(), notice.member_count);
    for (std::uint32_t m = 0; m < notice.member_count; ++m) indexes.emplace_back(view, m);
    memory = std::move(fd);
  }

  void Post(std::uint32_t tensor, std::size_t member, std::uint64_t occurrence,
            std::uint32_t meta = 0) {
    SubmissionSlot& slot = view.Slot(tensor, member, occurrence);
    slot.meta_id = meta;
    slot.occurrence.store(occurrence + 1);
    ++view.Member(member).posted;
    const auto [place, added] = places.try_emplace({tensor, member});
    if (added) place->second = indexes[member].Begin({tensor, occurrence});
  }
  // Of a tensor of which nothing else is in flight.
  void End(std::uint32_t tensor, std::size_t member, std::uint64_t occurrence) {
    view.Ended(tensor, member).store(occurrence + 1);
    ++view.Member(member).ended;
    indexes[member].End(places.at({tensor, member}));
    places.erase({tensor, member});
  }
  void NameTensors(std::uint32_t count) const {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!group->Hold(std::to_string(i)).ok()) FAIL("name " << i);
    }
  }
  // All that anybody has touched of it.
  std::uint64_t TouchedBytes() const {
    struct stat state {};
    REQUIRE(::fstat(memory.get(), &state) == 0);
    return static_cast<std::uint64_t>(state.st_blocks) * 512;
  }

  std::vector<std::unique_ptr<AttachedRank>> ranks;
  std::unique_ptr<LocalGroup> group;
  MemoryMapping segment;
  UniqueFd memory;
  JobSegmentView view;
  std::deque<InFlightIndex> indexes;
  std::map<std::pair<std::uint32_t, std::size_t>, std::uint32_t> places;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_LANES_NODE_LOCAL_JOB_H_
