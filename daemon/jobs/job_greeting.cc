// What a job says to its coordinator first.
#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/jobs/job.h"
#include "daemon/jobs/membership/protocol_version.h"

namespace ringd {
namespace {

// A start deadline waits so long for measurements that have begun.
constexpr std::chrono::seconds kMeasuringPatience{5};

}  // namespace

void Job::UseLink(std::unique_ptr<CoordinatorLink> link) {
  link_ = std::move(link);
  SendHello();
}

void Job::OnGathering(v1::Gathering gathering, Clock::time_point now) {
  gathering_ = std::move(gathering);
  // Who has all ranks begins, though it has waited long.
  if (gathering_->missing_ranks().empty()) {
    start_deadline_ = std::max(start_deadline_, now + kMeasuringPatience);
  }
}

void Job::SendHello() {
  v1::NodeMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_version(kPeerProtocolVersion);
  hello.set_daemon_version(options_.daemon_version);
  hello.set_job_id(options_.job_id);
  hello.set_uid(options_.uid);
  hello.set_size(options_.size);
  hello.set_local_size(options_.local_size);
  hello.set_node_name(options_.node_name);
  hello.set_transport_address(options_.transport_address);
  hello.set_start_timeout_ms(static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.start_timeout).count()));
  hello.set_fusion(options_.fusion);
  hello.set_weight(options_.weight);
  if (options_.rank_exchange != nullptr)
    hello.set_rank_exchange_address(options_.rank_exchange->address());
  link_->Send(std::move(message));
  greeted_ = true;
  for (const auto& [local_rank, member] : members_) SendJoined(member);
}

void Job::SendJoined(const Member& member) {
  v1::NodeMessage message;
  v1::RankInfo& info = *message.mutable_rank_joined()->mutable_rank();
  info.set_rank(member.rank.value());
  info.set_local_rank(member.local_rank.value());
  info.set_pid(member.pid);
  info.set_program(member.program);
  link_->Send(std::move(message));
}

}  // namespace ringd
