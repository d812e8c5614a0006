#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/jobs/job.h"
#include "tests/daemon/jobs/recording_link.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"

namespace ringd {
namespace {

// A job of two ranks on this node, which runs. The test is its coordinator.
struct RunningJob {
  RunningJob() {
    Job::Options options;
    options.job_id = "train";
    options.size = 2;
    options.local_size = 2;
    options.node_name = "node-a";
    options.communicator = CommunicatorId(7);
    options.next_communicator = [this] { return CommunicatorId(++last_id); };
    options.generation = 0;
    job.emplace(options, nullptr, Clock::now());
    job->UseLink(std::make_unique<RecordingLink>(sent));
    for (int rank = 0; rank < 2; ++rank) {
      v1::JoinRequest request;
      request.set_rank(rank);
      request.set_local_rank(rank);
      request.set_size(2);
      request.set_local_size(2);
      job->Join(ranks[rank].session, request, [](const absl::Status&, const v1::JoinReply&) {});
    }
    v1::CoordinatorMessage message;
    v1::Membership& membership = *message.mutable_membership();
    membership.set_wire_id(99);
    membership.set_chunk_bytes(4096);
    v1::NodeMember& node = *membership.add_nodes();
    node.set_node_name("node-a");
    for (int rank = 0; rank < 2; ++rank) {
      v1::RankInfo& info = *node.add_ranks();
      info.set_rank(rank);
      info.set_local_rank(rank);
    }
    job->OnCoordinatorMessage(message, Clock::now());
    REQUIRE(job->state() == Job::State::kRunning);
    sent.clear();
  }

  void Ask(int rank, const std::vector<int>& members = {1, 0}, bool again = false) {
    v1::CreateCommunicatorRequest request;
    request.set_name("pair");
    request.set_again(again);
    for (const int member : members) request.add_ranks(member);
    job->CreateCommunicator(
        *ranks[rank].session, request,
        [this, rank](const absl::Status& status, const v1::CreateCommunicatorReply& reply) {
          answers[rank] = status;
          replies[rank] = reply;
        });
  }

  void Make(std::uint32_t number, const std::vector<int>& members = {1, 0}) {
    v1::CoordinatorMessage message;
    message.set_communicator(number);
    message.mutable_communicator_made()->set_name("pair");
    for (const int member : members) message.mutable_communicator_made()->add_ranks(member);
    job->OnCoordinatorMessage(message, Clock::now());
  }

  std::vector<v1::NodeMessage> sent;
  AttachedRank ranks[2];
  std::uint32_t last_id = 7;
  std::optional<absl::Status> answers[2];
  v1::CreateCommunicatorReply replies[2];
  std::optional<Job> job;
};

}  // namespace

TEST_CASE(
    "Job: a communicator is made for those who have asked, and ends when all have dropped it") {
  RunningJob running;
  running.Ask(0);
  REQUIRE(running.sent.size() == 1);
  CHECK(running.sent[0].communicator_ask().rank() == 0);
  running.Ask(1);
  running.Make(1);
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(running.answers[rank].has_value());
    CHECK(running.answers[rank]->ok());
    CHECK(running.replies[rank].number() == 1);
    CHECK(running.replies[rank].combines_locally());
  }
  CHECK(running.job->extra_communicators() == 1);
  const CommunicatorId id(running.replies[0].communicator());
  CHECK(running.job->DestroyCommunicator(*running.ranks[0].session, id, Clock::now()).ok());
  CHECK(absl::IsNotFound(
      running.job->DestroyCommunicator(*running.ranks[0].session, id, Clock::now())));
  CHECK(running.job->DestroyCommunicator(*running.ranks[1].session, id, Clock::now()).ok());
  CHECK(running.sent.back().communicator_drop().rank() == 1);
  v1::CoordinatorMessage ended;
  ended.set_communicator(1);
  ended.mutable_communicator_ended();
  running.job->OnCoordinatorMessage(ended, Clock::now());
  running.job->Tick(Clock::now());
  CHECK(running.job->extra_communicators() == 0);
}

TEST_CASE("Job: who missed the answer and asks again has the communicator that was made") {
  RunningJob running;
  running.Ask(0);
  running.Ask(1);
  running.Make(1);
  const v1::CreateCommunicatorReply missed = std::exchange(running.replies[0], {});
  running.answers[0].reset();
  SECTION("which it has not dropped") {
    const std::size_t sent = running.sent.size();
    running.Ask(0, {1, 0}, /*again=*/true);
    REQUIRE(running.answers[0].has_value());
    CHECK(running.answers[0]->ok());
    CHECK(running.replies[0].SerializeAsString() == missed.SerializeAsString());
    CHECK(running.sent.size() == sent);
  }
  SECTION("which another rank has dropped: a new one is meant") {
    const CommunicatorId id(missed.communicator());
    CHECK(running.job->DestroyCommunicator(*running.ranks[1].session, id, Clock::now()).ok());
    running.Ask(0, {1, 0}, /*again=*/true);
    CHECK_FALSE(running.answers[0].has_value());
  }
  SECTION("once it has dropped that, a new one is meant") {
    const CommunicatorId id(missed.communicator());
    CHECK(running.job->DestroyCommunicator(*running.ranks[0].session, id, Clock::now()).ok());
    running.Ask(0, {1, 0}, /*again=*/true);
    CHECK_FALSE(running.answers[0].has_value());
    CHECK(running.sent.back().has_communicator_ask());
  }
}

TEST_CASE("Job: who asks again for one after an interrupt takes the place of the first time") {
  RunningJob running;
  running.Ask(0);
  std::optional<absl::Status> first;
  std::swap(first, running.answers[0]);
  running.Ask(0);
  REQUIRE(running.answers[0].has_value());  // the first time's
  CHECK(absl::IsAborted(*std::exchange(running.answers[0], std::nullopt)));
  CHECK(running.sent.size() == 1);
  running.Ask(1);
  running.Make(1);
  REQUIRE(running.answers[0].has_value());
  CHECK(running.answers[0]->ok());
  CHECK(running.replies[0].number() == 1);
  // Another list of ranks is another communicator.
  running.Ask(0, {0});
  CHECK(running.sent.size() == 3);
}

TEST_CASE("Job: a rank that leaves while a communicator is made ends that, and not the job") {
  for (const bool is_gone : {false, true}) {
    RunningJob running;
    running.Ask(0);
    running.Ask(1);
    REQUIRE(running.job->Leave(*running.ranks[0].session, Clock::now()));
    CHECK(absl::IsCancelled(running.answers[0].value()));
    if (is_gone) {
      running.job->OnSessionLost(*running.ranks[0].session, "has gone", false, Clock::now());
    }
    running.sent.clear();
    // The coordinator did not know yet.
    running.Make(1);
    REQUIRE(running.answers[1].has_value());
    CHECK(absl::IsAborted(*running.answers[1]));
    CHECK(running.answers[1]->message() ==
          "communicator 'pair': rank 0, pid 1 on node-a, left job 'train' (shutdown) while it was "
          "made");
    CHECK(running.job->state() == Job::State::kRunning);
    CHECK(running.job->extra_communicators() == 0);
    REQUIRE(running.sent.size() == 2);
    for (const v1::NodeMessage& message : running.sent) CHECK(message.has_communicator_drop());
  }
}

TEST_CASE("Job: communicators that idle ask for no ticks") {
  RunningJob running;
  running.Ask(0);
  running.Ask(1);
  running.Make(1);
  Clock::time_point now = Clock::now();
  CHECK(running.job->extra_communicators() == 1);
  // What has just been made, or used, has something to tell for a moment.
  for (int ticks = 0; ticks < 3; ++ticks) running.job->Tick(now += std::chrono::seconds(1));
  CHECK_FALSE(running.job->NeedsTicks());
  // That it is to be dropped is not put off.
  v1::CoordinatorMessage ended;
  ended.set_communicator(1);
  ended.mutable_communicator_ended();
  running.job->OnCoordinatorMessage(ended, now);
  CHECK(running.job->NeedsTicks());
  running.job->Tick(now);
  CHECK(running.job->extra_communicators() == 0);
  CHECK_FALSE(running.job->NeedsTicks());
}

TEST_CASE("Job: a coordinator makes nothing on a node where no rank has asked for it") {
  RunningJob running;
  for (std::uint32_t number = 1; number < 100; ++number) running.Make(number);
  CHECK(running.job->extra_communicators() == 0);
  CHECK(running.job->state() == Job::State::kRunning);
  // Nor a second one for one ask.
  running.Ask(0);
  running.Ask(1);
  running.Make(1);
  running.Make(2);
  CHECK(running.job->extra_communicators() == 1);
}

TEST_CASE("Job: a tensor's rank and the root of a broadcast are ranks of its communicator") {
  RunningJob running;
  running.Ask(1, {1});
  running.Make(1, {1});
  REQUIRE(running.replies[1].number() == 1);
  const auto status_of = [&running](CommunicatorId communicator, int root, int rank = 1) {
    Registration registration;
    registration.communicator = communicator;
    registration.name = "weights";
    registration.meta.kind = CollectiveKind::kBroadcast;
    registration.meta.root_rank = Rank(root);
    return running.job->Register(*running.ranks[rank].session, registration);
  };
  const CommunicatorId own(running.replies[1].communicator());
  const absl::Status refused = status_of(own, 0);
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(refused.message() == "tensor 'weights': root rank 0 is no rank of communicator 'pair'");
  CHECK(absl::IsNotFound(status_of(own, 1, 0)));
  CHECK(status_of(own, 1).ok());
  CHECK(status_of(CommunicatorId(7), 0).ok());
}

TEST_CASE("Job: a rank hears how tensors on GPUs go in its communicators, once others have told") {
  RunningJob running;
  running.Ask(1, {1});
  running.Make(1, {1});
  const CommunicatorId own(running.replies[1].communicator());
  std::optional<AgreedDevices> agreed;
  absl::Status result;
  const auto ask = [&](int rank, CommunicatorId communicator) {
    agreed.reset();
    running.job->AgreeOnDevices(*running.ranks[rank].session, communicator, Clock::now(),
                                [&](const absl::Status& status, const AgreedDevices& answer) {
                                  result = status;
                                  agreed = answer;
                                });
    return result;
  };
  const auto tell = [&running](int rank, const std::string& why_host) {
    v1::RankDevice device;
    device.set_rank(1 - rank);  // what the caller says counts for nothing
    device.set_goes_by_host(!why_host.empty());
    device.set_why(why_host);
    running.sent.clear();
    running.job->TellDevice(*running.ranks[rank].session, device);
    REQUIRE(running.sent.size() == 1);
    v1::CoordinatorMessage relayed;
    *relayed.mutable_rank_device() = running.sent[0].rank_device();
    CHECK(relayed.rank_device().rank() == rank);
    CHECK(relayed.rank_device().why().size() <= kMostDeviceWhyBytes);
    running.job->OnCoordinatorMessage(relayed, Clock::now());
  };
  CHECK(absl::IsNotFound(ask(0, own)));
  tell(1, "");
  CHECK(ask(1, own).ok());
  CHECK_FALSE(agreed.value().goes_by_host);
  // That of all ranks waits for rank 0.
  CHECK(ask(1, CommunicatorId(7)).ok());
  CHECK_FALSE(agreed.has_value());
  CHECK(running.job->NeedsTicks());
  tell(0, std::string(5000, 'x'));
  REQUIRE(agreed.has_value());
  CHECK(agreed->goes_by_host);
  CHECK(agreed->why.find("rank 0, pid 0 on node-a: xxx") == 0);
}

}  // namespace ringd
