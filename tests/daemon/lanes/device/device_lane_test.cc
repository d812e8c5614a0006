#include "daemon/lanes/device/device_lane.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/daemon/lanes/device/laned_rank.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::NcclRank;
using emulator::RunRanks;

TensorMeta Of(DataType type, ReduceOp op, std::int64_t count) {
  TensorMeta meta;
  meta.dtype = type;
  meta.op = op;
  meta.shape = {count};
  meta.place = TensorPlace::kDevice;
  return meta;
}

TEST_CASE("DeviceLane: what begins before the id has come waits for it, and then ends once") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          LanedRank self(child, rank);
          self.view().Write<float>(0, {1.0F, 2.0F + static_cast<float>(rank.rank())});
          self.view().Write<std::int64_t>(4096, {rank.rank() - 2});
          self.Start(1, {Of(DataType::kFloat32, ReduceOp::kSum, 2)}, {0});
          self.SetReady(1);
          NcclRank::Pause();
          CHILD_CHECK(self.lane().TakeEnds().empty());
          CHILD_CHECK(!self.lane().Quiet());
          CHILD_CHECK(self.lane().Describe().at(0).state == "waiting");
          self.lane().TakeId({IdOf(rank), true});
          std::vector<DeviceLane::End> ends = self.WaitEnds();
          CHILD_CHECK(ends.size() == 1);
          CHILD_CHECK(ends[0].id == OperationId(1));
          CHILD_STATUS(ends[0].status);
          CHILD_CHECK(self.view().Read<float>(0, 2) == std::vector<float>({2, 5}));
          // Integers are divided toward minus infinity, as on the host: -3 / 2.
          self.Start(2, {Of(DataType::kInt64, ReduceOp::kAverage, 1)}, {4096});
          self.SetReady(2);
          CHILD_STATUS(self.WaitEnds().at(0).status);
          CHILD_CHECK(self.view().Read<std::int64_t>(4096, 1).at(0) == -2);
          CHILD_CHECK(self.lane().Quiet());
          CHILD_CHECK(self.lane().TakeEnds().empty());
          CHILD_STATUS(self.lane().Health(Clock::now() + kPatience));
        }) == "");
}

// 1 / 3 in float8_e5m2 is 0.3125.
TEST_CASE("DeviceLane: averages of float8 are divided as on the host, and do not overflow") {
  CHECK(RunRanks(3, With(), [](const Child& child, const NcclRank& rank) {
          LanedRank self(child, rank);
          self.lane().TakeId({IdOf(rank), true});
          constexpr std::uint8_t kOneAndAQuarter = 0x3d;
          constexpr std::uint8_t kLargest = 0x7b;
          self.view().Write<std::uint8_t>(0, {kOneAndAQuarter, kLargest});
          self.Start(1, {Of(DataType::kFloat8E5M2, ReduceOp::kAverage, 2)}, {0});
          self.SetReady(1);
          CHILD_STATUS(self.WaitEnds().at(0).status);
          CHILD_CHECK(self.view().Read<std::uint8_t>(0, 2) ==
                      std::vector<std::uint8_t>({kOneAndAQuarter, kLargest}));
        }) == "");
}

TEST_CASE("DeviceLane: names the member whose stream does not come to an operation") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          LanedRank self(child, rank);
          self.lane().TakeId({IdOf(rank), true});
          const std::vector<TensorMeta> metas = {Of(DataType::kFloat32, ReduceOp::kSum, 2)};
          self.Start(1, metas, {0});
          self.Start(2, metas, {64});
          self.WaitUntil([&] { return !self.lane().MembersNotReady(OperationId(1)).empty(); },
                         "word of a stream that is late");
          CHILD_CHECK(self.lane().MembersNotReady(OperationId(1)) == std::vector<int>{0});
          CHILD_CHECK(self.lane().MembersNotReady(OperationId(2)).empty());
          self.SetReady(1);
          self.WaitUntil([&] { return self.lane().MembersNotReady(OperationId(1)).empty(); },
                         "its coming");
          self.SetReady(2);
          std::size_t ended = 0;
          while (ended < 2) ended += self.WaitEnds().size();
          CHILD_CHECK(self.lane().MembersNotReady(OperationId(2)).empty());
        }) == "");
}

TEST_CASE("DeviceLane: describes the rank's GPU, NCCL's communicator and the memory") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_CUDA_MPS", "on"}}),
                 [](const Child& child, const NcclRank& rank) {
                   LanedRank self(child, rank);
                   DeviceLane::Description before = self.lane().Describe().at(0);
                   CHILD_CHECK(before.nccl_version.empty());
                   CHILD_CHECK(before.fusion_bytes == 0);
                   self.lane().TakeId({IdOf(rank), true});
                   self.Start(1, {Of(DataType::kFloat32, ReduceOp::kSum, 1)}, {0});
                   self.SetReady(1);
                   CHILD_STATUS(self.WaitEnds().at(0).status);
                   const std::vector<DeviceLane::Description> all = self.lane().Describe();
                   CHILD_CHECK(all.size() == 1);
                   CHILD_CHECK(all[0].rank == Rank(rank.rank()));
                   CHILD_CHECK(all[0].nccl_rank == rank.rank());
                   CHILD_CHECK(all[0].gpu == self.slab().uuid());
                   CHILD_CHECK(all[0].is_under_mps == true);
                   CHILD_CHECK(all[0].nccl_version == "2.29.7");
                   CHILD_CHECK(all[0].state == "ready");
                   CHILD_CHECK(all[0].failure.empty());
                   CHILD_CHECK(all[0].slab_bytes == self.slab().bytes());
                   CHILD_CHECK(all[0].fusion_bytes == LanedRank::kFusion);
                   CHILD_CHECK(!before.registered_bytes.has_value());
                   CHILD_CHECK(all[0].registered_bytes >= self.slab().bytes() + LanedRank::kFusion);
                   CHILD_CHECK(all[0].why_not_registered.empty());
                 }) == "");
}

TEST_CASE("DeviceLane: where some rank is not able to register memory, none does, and it says so") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          LanedRank self(child, rank);
          self.lane().TakeId({IdOf(rank), false});
          self.Start(1, {Of(DataType::kFloat32, ReduceOp::kSum, 1)}, {0});
          self.SetReady(1);
          CHILD_STATUS(self.WaitEnds().at(0).status);
          const DeviceLane::Description described = self.lane().Describe().at(0);
          CHILD_CHECK(described.registered_bytes == std::uint64_t{0});
          CHILD_CHECK(!described.why_not_registered.empty());
        }) == "");
}

TEST_CASE("DeviceLane: what NCCL refuses ends with that, and the lane goes on") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          LanedRank self(child, rank);
          self.lane().TakeId({IdOf(rank), true});
          self.Start(1, {Of(DataType::kBool, ReduceOp::kSum, 4)}, {0});
          self.SetReady(1);
          const DeviceLane::End refused = self.WaitEnds().at(0);
          CHILD_REFUSED(absl::StatusCode::kInvalidArgument, "bool", refused.status);
          self.view().Write<float>(0, {1, 2});
          self.Start(2, {Of(DataType::kFloat32, ReduceOp::kMax, 2)}, {0});
          self.SetReady(2);
          CHILD_STATUS(self.WaitEnds().at(0).status);
        }) == "");
}

TEST_CASE("DeviceLane: an error of NCCL's is its health, when nobody has had a better word") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "error@0:2=6;error@1:2=6"}}),
                 [](const Child& child, const NcclRank& rank) {
                   LanedRank self(child, rank);
                   self.lane().TakeId({IdOf(rank), true});
                   self.Start(1, {Of(DataType::kFloat32, ReduceOp::kSum, 4)}, {0});
                   self.SetReady(1);
                   const auto health_later = [&] {
                     return self.lane().Health(Clock::now() + DeviceLane::kBetterWord);
                   };
                   self.WaitUntil([&] { return !health_later().ok(); }, "the failure");
                   CHILD_STATUS(self.lane().Health(Clock::time_point()));
                   CHILD_CHECK(health_later().message().find("the GPUs' communicator") == 0);
                   CHILD_CHECK(self.lane().Describe().at(0).state == "failed");
                   CHILD_CHECK(self.lane().Describe().at(0).failure.find("remote process") !=
                               std::string::npos);
                   self.lane().Abort("the job has failed");
                   self.WaitUntil([&] { return self.lane().Quiet(); }, "quiet");
                   CHILD_CHECK(self.lane().TakeEnds().empty());
                 }) == "");
}

TEST_CASE("DeviceLane: a process that says that it ends has some time to be told as a rank") {
  CHECK(RunRanks(
            2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "hang@0:2;hang@1:2"}}),
            [](const Child& child, const NcclRank& rank) {
              LanedRank self(child, rank);
              self.lane().TakeId({IdOf(rank), true});
              self.Start(1, {Of(DataType::kFloat32, ReduceOp::kSum, 4)}, {0});
              self.SetReady(1);
              const auto is_ready = [&] { return self.lane().Describe().at(0).state == "ready"; };
              self.WaitUntil(is_ready, "the communicator");
              // As client/core/lanes/device/launch_servant does.
              for (const auto& [id, nccl] : self.slab().gpu()->Describe()) {
                self.slab().gpu()->Abort(id, "this process ends");
              }
              const auto health_after = [&](Clock::duration time) {
                return self.lane().Health(Clock::now() + time);
              };
              self.WaitUntil([&] { return !health_after(DeviceLane::kWordOfEnd).ok(); }, "its end");
              CHILD_STATUS(health_after(DeviceLane::kBetterWord));
              self.lane().Abort("rank 0 has ended");
              self.WaitUntil([&] { return self.lane().Quiet(); }, "quiet");
            }) == "");
}

TEST_CASE("DeviceLane: an abort lets streams go, leaves nothing in flight, and stays the reason") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:2"}}),
                 [](const Child& child, const NcclRank& rank) {
                   LanedRank self(child, rank);
                   self.lane().TakeId({IdOf(rank), true});
                   for (std::uint64_t number = 1; number <= 3; ++number) {
                     self.Start(number, {Of(DataType::kFloat32, ReduceOp::kSum, 4)}, {0});
                   }
                   self.SetReady(3);
                   NcclRank::Pause();
                   CHILD_CHECK(!self.lane().Quiet());
                   self.lane().Abort("rank 1 has died");
                   self.lane().Abort("something else");
                   self.WaitUntil([&] { return self.lane().Quiet(); }, "quiet");
                   // No stream waits for a result: the value is beyond all.
                   self.WaitUntil([&] { return self.view().Slot(DoneSlot(0)) > 3; }, "the release");
                   CHILD_CHECK(self.lane().TakeEnds().empty());
                   const DeviceLane::Description after = self.lane().Describe().at(0);
                   CHILD_CHECK(after.state == "failed");
                   CHILD_CHECK(after.failure == "rank 1 has died");
                   // What is started after that ends with the communicator.
                   self.Start(4, {Of(DataType::kFloat32, ReduceOp::kSum, 4)}, {0});
                   CHILD_CHECK(self.lane().Quiet());
                 }) == "");
}

TEST_CASE("DeviceLane: what an ended one has kept serves the next one, and no other is made") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          LanedRank self(child, rank, std::chrono::minutes(1));
          const auto sum = [&self, &child, &rank](std::uint64_t number) {
            self.view().Write<float>(0, {static_cast<float>(number), 1.0F});
            self.Start(number, {Of(DataType::kFloat32, ReduceOp::kSum, 2)}, {0});
            self.SetReady(number);
            // An id makes one communicator: another one of the same can't come about.
            self.lane().TakeId({IdOf(rank), true, number > 1});
            CHILD_STATUS(self.WaitEnds().at(0).status);
            CHILD_CHECK(self.view().Read<float>(0, 2) ==
                        std::vector<float>({2 * static_cast<float>(number), 2}));
          };
          sum(1);
          self.EndLane();  // in order
          CHILD_CHECK(!self.room().kept().empty());
          CHILD_CHECK(self.room().Lingers(Clock::now() + std::chrono::hours(1)));
          self.OpenLane();
          sum(2);
          CHILD_CHECK(self.room().kept().empty());
          CHILD_CHECK(self.lane().Describe().at(0).state == "ready");
          self.lane().Abort("rank 1 has died");
          self.EndLane();
          const auto kept =
              self.room().kept().Announce(Rank(rank.rank()), 2, *self.slab().gpu(), Clock::now());
          CHILD_CHECK(kept.size() == 1);
          CHILD_CHECK(kept[0]->launched == 2);
          self.OpenLane();
          sum(3);
          // Others meet anew: theirs is not what was kept.
          self.EndLane();
          self.room().DropExpired(Clock::now() + std::chrono::hours(1), false);
          CHILD_CHECK(self.room().kept().empty());
          self.WaitUntil([&] { return self.slab().gpu()->Describe().empty(); }, "its end");
        }) == "");
}

TEST_CASE("DeviceLane: what is in flight, or has failed, is not kept; what was lost is told") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:1"}}),
                 [](const Child& child, const NcclRank& rank) {
                   LanedRank self(child, rank, std::chrono::minutes(1));
                   self.lane().TakeId({IdOf(rank), true});
                   self.Start(1, {Of(DataType::kFloat32, ReduceOp::kSum, 4)}, {0});
                   self.SetReady(1);
                   NcclRank::Pause();
                   self.lane().Abort("rank 1 has died");
                   CHILD_CHECK(self.room().kept().empty());
                   self.WaitUntil([&] { return self.lane().Quiet(); }, "quiet");
                   self.EndLane();
                   CHILD_CHECK(self.room().kept().empty());
                   self.OpenLane();
                   self.Start(2, {Of(DataType::kFloat32, ReduceOp::kSum, 4)}, {0});
                   self.lane().TakeId({IdOf(rank), true, true});
                   const absl::Status health =
                       self.lane().Health(Clock::now() + DeviceLane::kWordOfEnd);
                   CHILD_REFUSED(absl::StatusCode::kUnavailable, "kept of an earlier job", health);
                 }) == "");
}

}  // namespace
}  // namespace ringd
