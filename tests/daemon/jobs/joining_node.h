// Ranks of a node join a job of three that is coordinated elsewhere: the test is the coordinator.
#ifndef RINGD_TESTS_DAEMON_JOBS_JOINING_NODE_H_
#define RINGD_TESTS_DAEMON_JOBS_JOINING_NODE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "daemon/jobs/job.h"
#include "tests/daemon/jobs/recording_link.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"

namespace ringd {

// Of `local_size` ranks here rank 1 has joined.
struct JoiningNode {
  explicit JoiningNode(int local_size = 1) {
    Job::Options options;
    options.job_id = "train";
    options.uid = 1000;
    options.size = 3;
    options.local_size = local_size;
    options.rendezvous = "10.0.0.9:7117";
    options.node_name = "node-b";
    options.start_timeout = std::chrono::seconds(20);
    options.stall_warning = std::chrono::seconds(5);
    job = std::make_unique<Job>(options, nullptr, begin);
    job->UseLink(std::make_unique<RecordingLink>(sent));
    v1::JoinRequest request;
    request.set_rank(1);
    request.set_size(options.size);
    request.set_local_size(options.local_size);
    request.set_rendezvous(options.rendezvous);
    job->Join(rank.session, request, [](const absl::Status&, const v1::JoinReply&) {});
  }

  // What the coordinator says, so long after the beginning.
  void Hear(const std::vector<int>& missing, std::chrono::milliseconds at) {
    v1::CoordinatorMessage message;
    message.mutable_gathering();
    for (const int absent : missing) message.mutable_gathering()->add_missing_ranks(absent);
    job->OnCoordinatorMessage(message, begin + at);
  }
  void Answer(std::chrono::milliseconds at) {
    v1::CoordinatorMessage message;
    message.mutable_clock_pong();
    job->OnCoordinatorMessage(message, begin + at);
  }
  std::string WaitsFor(std::chrono::milliseconds at) const {
    v1::Job shown;
    job->Describe(&shown, begin + at);
    std::string text = shown.waits_for();
    for (const int absent : shown.missing_ranks()) text += " " + std::to_string(absent);
    return text;
  }

  Clock::time_point begin = Clock::now();
  AttachedRank rank;
  std::vector<v1::NodeMessage> sent;
  std::unique_ptr<Job> job;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_JOBS_JOINING_NODE_H_
