// What a job and its coordinator say to each other first, and prove.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/membership/protocol_version.h"
#include "proto/door/hmac.h"
#include "proto/door/secure_random.h"

namespace ringd {
namespace {

// Of what somebody says that has proved nothing.
constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kMaxRefusalBytes = 2048;

std::string Printable(absl::string_view text, std::size_t limit) {
  std::string printable(text.substr(0, limit));
  std::replace_if(
      printable.begin(), printable.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return printable;
}

}  // namespace

void Job::UseLink(std::unique_ptr<CoordinatorLink> link, bool expects_challenge) {
  link_ = std::move(link);
  trusts_coordinator_ = !expects_challenge;
  if (!expects_challenge) SendHello();
}

JobProofSubject Job::ProofSubject() const {
  return {coordinator_nonce_, node_nonce_, options_.job_id, options_.node_name};
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
  if (options_.fast_path != nullptr) hello.set_fast_path_address(options_.fast_path->address());
  hello.set_has_cluster_key(options_.has_cluster_key);
  if (!coordinator_nonce_.empty()) {
    hello.set_nonce(node_nonce_);
    hello.set_proof(NodeProof(KeyForControl(options_.key), ProofSubject()));
  }
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

void Job::OnUnprovenMessage(const v1::CoordinatorMessage& message) {
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kChallenge:
      if (!greeted_) OnChallenge(message.challenge());
      return;
    case v1::CoordinatorMessage::kProof:
      OnCoordinatorProof(message.proof());
      return;
    case v1::CoordinatorMessage::kFailure:
      OnRefusal(message.failure());
      return;
    default:
      Fail(absl::UnauthenticatedError(absl::StrCat("the ringd at ", options_.rendezvous,
                                                   " gives orders to job '", options_.job_id,
                                                   "' without proof that it knows the job's key")));
  }
}

void Job::OnChallenge(const v1::Challenge& challenge) {
  if (challenge.protocol_version() != kPeerProtocolVersion) {
    Fail(absl::FailedPreconditionError(absl::StrCat(
        "the coordinator at ", options_.rendezvous, " (ringd ",
        Printable(challenge.daemon_version(), kMaxNameBytes), ") speaks peer protocol ",
        challenge.protocol_version(), ", ringd ", options_.daemon_version, " on ",
        options_.node_name, " speaks ", kPeerProtocolVersion)));
    return;
  }
  if (challenge.nonce().size() != kJobNonceBytes) {
    Fail(absl::InvalidArgumentError(absl::StrCat("the ringd at ", options_.rendezvous,
                                                 " sent a challenge of ", challenge.nonce().size(),
                                                 " bytes, not ", kJobNonceBytes)));
    return;
  }
  coordinator_nonce_ = challenge.nonce();
  coordinator_has_cluster_key_ = challenge.has_cluster_key();
  coordinator_node_ = Printable(challenge.node_name(), kMaxNameBytes);
  if (coordinator_node_.empty()) coordinator_node_ = options_.rendezvous;
  node_nonce_ = RandomBytes(kJobNonceBytes);
  SendHello();
}

void Job::OnCoordinatorProof(const v1::CoordinatorProof& proof) {
  // Before its Challenge it can know nothing to prove anything about.
  if (greeted_ && EqualInConstantTime(CoordinatorProof(KeyForControl(options_.key), ProofSubject()),
                                      proof.proof())) {
    trusts_coordinator_ = true;
    return;
  }
  Fail(absl::UnauthenticatedError(
      absl::StrCat("the ringd at ", options_.rendezvous, " does not know the key of job '",
                   options_.job_id, "': ",
                   DescribeKeyDifference({coordinator_node_, coordinator_has_cluster_key_},
                                         {options_.node_name, options_.has_cluster_key}))));
}

// Whoever answers may refuse: they could as well not answer. Nothing else follows from the words.
void Job::OnRefusal(const v1::Failure& refusal) {
  const auto code = static_cast<absl::StatusCode>(refusal.code());
  FailLocally(absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kAborted : code,
                           absl::StrCat("the ringd at ", options_.rendezvous, " refuses: ",
                                        Printable(refusal.text(), kMaxRefusalBytes))));
}

}  // namespace ringd
