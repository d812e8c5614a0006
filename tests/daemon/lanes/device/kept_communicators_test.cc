#include "daemon/lanes/device/kept_communicators.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

namespace ringd {
namespace {

using std::chrono::seconds;

// Remembers who was let go, in peace or not.
class Launcher final : public DeviceLauncher {
 public:
  void Disconnect(DeviceCommunicatorId communicator, Clock::time_point) override {
    let_go.push_back(communicator.value());
  }
  void Abort(DeviceCommunicatorId communicator, absl::string_view) override {
    let_go.push_back(communicator.value());
  }

  std::vector<DeviceEvent> TakeEvents() override { return {}; }
  void CreateSlab(DeviceSlabId, std::size_t) override {}
  void ReleaseSlab(DeviceSlabId, std::span<const std::uint32_t>) override {}
  void ReleaseSlots(DeviceSlabId, std::span<const std::uint32_t>) override {}
  void CreateId(std::uint64_t) override {}
  void Connect(DeviceCommunicatorId, const NcclIdBytes&, int, int, std::size_t,
               std::optional<DeviceSlabId>, Clock::time_point) override {}
  void Enqueue(DeviceBucket) override {}
  bool Stop(std::chrono::milliseconds) override { return true; }
  DeviceThreadActivity activity() const override { return {}; }
  std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> Describe() const override {
    return {};
  }

  std::vector<std::uint64_t> let_go;
};

// Of the job's ranks 4 and 5 (and `more`), of which 5 is here.
struct Node {
  KeptCommunicator Make(std::uint64_t number, const std::vector<Rank>& more = {}) const {
    KeptCommunicator kept;
    kept.id[0] = static_cast<char>(number);
    kept.launched = number;
    kept.ranks = {Rank(4), Rank(5)};
    kept.ranks.insert(kept.ranks.end(), more.begin(), more.end());
    kept.here.push_back({1, launcher, DeviceCommunicatorId(number)});
    return kept;
  }

  const Clock::time_point now = Clock::now();
  const std::shared_ptr<Launcher> launcher = std::make_shared<Launcher>();
  KeptCommunicators all;
};

using Numbers = std::vector<std::uint64_t>;
const std::vector<Rank> kPair = {Rank(4), Rank(5)};

TEST_CASE("KeptCommunicators: a rank announces what it had on its GPU, and that stays") {
  Node node;
  node.all.Add(node.Make(1), node.now + seconds(3));
  CHECK(node.all.Announce(Rank(4), 6, *node.launcher, node.now).empty());
  CHECK(node.all.Announce(Rank(5), 6, Launcher(), node.now).empty());
  CHECK(node.all.Of(kPair, node.now) == nullptr);
  const auto announced = node.all.Announce(Rank(5), 6, *node.launcher, node.now);
  REQUIRE(announced.size() == 1);
  CHECK(announced.front()->launched == 1);
  CHECK(node.all.Of(kPair, node.now) == announced.front());
  node.all.DropExpired(node.now + seconds(100));
  CHECK_FALSE(node.all.empty());
  node.all.EndAnnounced(node.now + seconds(103));
  CHECK(node.all.Of(kPair, node.now) == nullptr);
  node.all.DropExpired(node.now + seconds(102));
  CHECK_FALSE(node.all.empty());
  node.all.DropExpired(node.now + seconds(103));
  CHECK(node.all.empty());
  CHECK(node.launcher->let_go == Numbers{1});
}

TEST_CASE("KeptCommunicators: nobody is given one so late that other nodes may have let it go") {
  Node node;
  node.all.Add(node.Make(1), node.now);
  node.all.Announce(Rank(5), 6, *node.launcher, node.now);
  CHECK(node.all.Of(kPair, node.now + KeptCommunicators::kUsable) == nullptr);
  node.all.DropExpired(node.now + KeptCommunicators::kUsable);
  CHECK_FALSE(node.all.empty());
  node.all.DropExpired(node.now + KeptCommunicators::kAnnounced);
  CHECK(node.all.empty());
}

TEST_CASE("KeptCommunicators: one is promised once, and stays for whom it is promised to") {
  Node node;
  node.all.Add(node.Make(1), node.now);
  node.all.Announce(Rank(5), 6, *node.launcher, node.now);
  node.all.Name(node.Make(1).id);
  CHECK(node.all.Of(kPair, node.now) == nullptr);
  node.all.Drop(kPair);                  // another communicator of these ranks has met
  node.all.Add(node.Make(2), node.now);  // and has ended
  CHECK(node.all.Take(node.Make(1).id).has_value());
  CHECK(node.launcher->let_go.empty());
}

TEST_CASE("KeptCommunicators: what a smaller job can't use is let go at once") {
  Node node;
  node.all.Add(node.Make(1), node.now);
  node.all.Add(node.Make(2, {Rank(7)}), node.now);
  CHECK(node.all.Announce(Rank(5), 7, *node.launcher, node.now).size() == 1);
  CHECK(node.launcher->let_go == Numbers{2});
}

TEST_CASE("KeptCommunicators: what is taken is the taker's; of the same ranks only the latest is") {
  Node node;
  node.all.Add(node.Make(1), node.now);
  node.all.Add(node.Make(2, {Rank(6)}), node.now);
  node.all.Add(node.Make(3), node.now);
  CHECK(node.launcher->let_go == Numbers{1});
  CHECK_FALSE(node.all.Take(node.Make(1).id).has_value());
  CHECK(node.all.Take(node.Make(3).id).value().here.front().communicator.value() == 3);
  CHECK_FALSE(node.all.Take(node.Make(3).id).has_value());
  node.all.Drop({Rank(4), Rank(5), Rank(6)});
  CHECK(node.launcher->let_go == Numbers{1, 2});
  CHECK(node.all.empty());
}

TEST_CASE("KeptCommunicators: one that has failed, or is one too many, goes") {
  Node node;
  for (std::uint64_t number = 0; number <= KeptCommunicators::kMost; ++number) {
    node.all.Add(node.Make(number, {Rank(static_cast<int>(number) + 10)}), node.now + seconds(9));
  }
  CHECK(node.launcher->let_go == std::vector<std::uint64_t>{0});
  node.all.OnFailed(DeviceCommunicatorId(7));
  CHECK(node.launcher->let_go == std::vector<std::uint64_t>{0, 7});
  CHECK_FALSE(node.all.Take(node.Make(7).id).has_value());
  CHECK(node.all.Take(node.Make(8).id).has_value());
}

}  // namespace
}  // namespace ringd
