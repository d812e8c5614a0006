#include "daemon/jobs/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/peers/schedule_conversion.h"
#include "proto/base/text.h"
#include "proto/door/hmac.h"
#include "proto/operations/operation_traits.h"

namespace ringd {
namespace {

// A node that hears nothing from its coordinator gives up a little after the coordinator would
// have.
constexpr auto kCoordinatorGrace = std::chrono::seconds(1);

}  // namespace

Job::Job(Options options, Transport* transport, Clock::time_point now)
    : options_(std::move(options)),
      transport_(transport),
      created_(now),
      start_deadline_(now + options_.start_timeout + kCoordinatorGrace) {}

Job::~Job() = default;

Job::Member* Job::Find(const Session& session) {
  for (auto& [local_rank, member] : members_) {
    if (member.session.get() == &session) return &member;
  }
  return nullptr;
}

const Job::Member* Job::Find(const Session& session) const {
  return const_cast<Job*>(this)->Find(session);
}

int Job::PositionOf(const Member& member) const {
  return static_cast<int>(std::distance(members_.begin(), members_.find(member.local_rank)));
}

bool Job::Finished() const {
  const bool all_gone = std::all_of(members_.begin(), members_.end(), [](const auto& entry) {
    return entry.second.session == nullptr && !entry.second.lost_since.has_value();
  });
  return all_gone && probe_ == nullptr && !agreed_.pending() && !AnswersForLeavers() &&
         std::ranges::all_of(
             Parts(), [](const CommunicatorPart* part) { return part->communicator->Quiet(); });
}

LogFields Job::Fields() const {
  LogFields fields{.job = options_.job_id, .communicator = options_.communicator.value()};
  fields.generation = membership_ == nullptr ? options_.generation : membership_->generation;
  return fields;
}

LogFields Job::Fields(Rank rank) const {
  LogFields fields = Fields();
  fields.rank = rank.value();
  return fields;
}

LogFields Job::Fields(const Session& session) const {
  const Member* member = Find(session);
  return member == nullptr ? Fields() : Fields(member->rank);
}

absl::Status Job::CheckJoin(const v1::JoinRequest& request) const {
  const auto differs = [&](absl::string_view what, const auto& ours, const auto& first) {
    return absl::InvalidArgumentError(
        absl::StrCat("job '", options_.job_id, "': rank ", request.rank(), " says ", what, " ",
                     ours, ", another rank on ", options_.node_name, " said ", first,
                     "; if these are two jobs, give each an id of its own (RINGD_JOB_ID)"));
  };
  // First of all: what it says is worth something only from a rank of this job.
  if (!EqualInConstantTime(request.secret(), options_.secret)) {
    return absl::UnauthenticatedError(absl::StrCat(
        "job '", options_.job_id, "': rank ", request.rank(),
        " has another job secret than the ranks that joined before (RINGD_JOB_SECRET)"));
  }
  if (request.size() != options_.size) return differs("size", request.size(), options_.size);
  if (request.local_size() != options_.local_size) {
    return differs("local size", request.local_size(), options_.local_size);
  }
  if (request.rendezvous() != options_.rendezvous) {
    return differs("rendezvous", request.rendezvous(), options_.rendezvous);
  }
  if (const std::uint32_t weight = JobWeightOrDefault(request.weight());
      weight != options_.weight) {
    return differs("weight", weight, options_.weight);
  }
  if (request.fusion() != options_.fusion) {
    return differs("RINGD_FUSION", absl::StrCat("'", request.fusion(), "'"),
                   absl::StrCat("'", options_.fusion, "'"));
  }
  for (const auto& [local_rank, member] : members_) {
    if (member.rank.value() == request.rank() || local_rank.value() == request.local_rank()) {
      return absl::AlreadyExistsError(absl::StrCat(
          "job '", options_.job_id, "': pid ", request.pid(), " claims rank ", request.rank(),
          " (local rank ", request.local_rank(), "), but ",
          DescribeRank(member.rank, member.pid, options_.node_name), " has joined as rank ",
          member.rank.value(), " (local rank ", local_rank.value(),
          "); if these are two jobs, give each an id of its own (RINGD_JOB_ID)"));
    }
  }
  return absl::OkStatus();
}

void Job::Join(std::shared_ptr<Session> session, const v1::JoinRequest& request,
               JoinCallback done) {
  if (absl::Status status = CheckJoin(request); !status.ok()) {
    done(status, {});
    // The ranks that were here first hear of a disagreement, too: without that one they would only
    // wait. Whoever has another secret is no rank of this job and must not harm it.
    if (!absl::IsUnauthenticated(status)) Fail(status);
    return;
  }
  Member member;
  member.rank = Rank(request.rank());
  member.local_rank = LocalRank(request.local_rank());
  member.pid = session->peer().pid != 0 ? session->peer().pid : request.pid();
  member.program = PrintableProgram(request.program());
  member.session = std::move(session);
  member.done = std::move(done);
  const auto entry = members_.emplace(member.local_rank, std::move(member)).first;
  if (greeted_) SendJoined(entry->second);
}

void Job::OnCoordinatorMessage(v1::CoordinatorMessage message, Clock::time_point now) {
  if (state_ == State::kFailed) return;
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kLinkProbe:
    case v1::CoordinatorMessage::kAllReduceTrial:
      OnProbe(message);
      return;
    case v1::CoordinatorMessage::kMembership:
      OnMembership(message.membership(), now);
      return;
    case v1::CoordinatorMessage::kFailure: {
      const auto code = static_cast<absl::StatusCode>(message.failure().code());
      std::string text(CutToLength(message.failure().text(), 4096));
      if (message.failure().node_lost() && world_.communicator != nullptr) {
        absl::StrAppend(&text, " ", DescribeInFlight());
      }
      FailLocally(
          absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kAborted : code, text));
      return;
    }
    case v1::CoordinatorMessage::kRanksLeft:
      OnRanksLeft(message.ranks_left(), now);
      return;
    case v1::CoordinatorMessage::kTraceInquiry:
      OnTraceInquiry(std::move(*message.mutable_trace_inquiry()), now);
      return;
    case v1::CoordinatorMessage::kTraceAnswer:
      trace_gatherings_.OnAnswer(std::move(*message.mutable_trace_answer()));
      return;
    case v1::CoordinatorMessage::kClockPong:
      OnClockPong(message.clock_pong());
      return;
    case v1::CoordinatorMessage::kGathering:
      OnGathering(std::move(*message.mutable_gathering()), now);
      return;
    case v1::CoordinatorMessage::kCommunicatorMade:
      OnCommunicatorMade(message.communicator(), message.communicator_made(), now);
      return;
    case v1::CoordinatorMessage::kRankDevice:
      OnRankDevice(message.rank_device());
      return;
    case v1::CoordinatorMessage::kCommunicatorRefused:
      OnCommunicatorRefused(message.communicator_refused());
      return;
    default:
      break;
  }
  // The membership came for a rank that had died meanwhile: its end is about to be told.
  if (world_.communicator == nullptr && FirstLost() != nullptr) return;
  CommunicatorPart* const part = Find(message.communicator());
  // It has ended here.
  if (part == nullptr) return;
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kStallInquiry:
      OnStallInquiry(*part, message.stall_inquiry());
      return;
    case v1::CoordinatorMessage::kStallVerdict:
      OnStallVerdict(*part, message.stall_verdict(), now);
      return;
    case v1::CoordinatorMessage::kPlan:
      part->plan = message.plan();
      return;
    case v1::CoordinatorMessage::kCommunicatorDrop:
      OnCommunicatorDropped(*part, message.communicator_drop().rank(), now);
      return;
    case v1::CoordinatorMessage::kDeviceId:
      OnDeviceId(*part, message.device_id());
      return;
    case v1::CoordinatorMessage::kOrderInquiry:
      OnOrderInquiry(*part, message.order_inquiry(), now);
      return;
    case v1::CoordinatorMessage::kCommunicatorEnded:
      part->ended = parts_need_ticks_ = part->number != 0;
      return;
    default:
      break;
  }
  absl::StatusOr<CoordinatorMessage> scheduling = FromProto(message);
  absl::Status status = scheduling.status();
  if (status.ok() && part->communicator == nullptr) {
    status = absl::FailedPreconditionError("a scheduling message before the membership");
  }
  if (status.ok()) status = part->communicator->OnMessage(*scheduling, now);
  if (part->number != 0) Activate(*part, now);
  if (!status.ok()) {
    Propose(absl::InternalError(absl::StrCat("the coordinator at ", options_.rendezvous,
                                             " broke the protocol: ", status.message())));
  }
}

absl::Status Job::Register(const Session& session, Registration& registration) {
  if (absl::Status status = MayRegister(session); !status.ok()) return status;
  return Number(session, registration, MetaKey(registration.meta));
}

absl::Status Job::MayRegister(const Session& session) const {
  if (state_ == State::kFailed) return failure();
  if (Find(session) == nullptr || world_.communicator == nullptr) {
    return absl::FailedPreconditionError("this process has not joined a job that runs");
  }
  return absl::OkStatus();
}

absl::Status Job::Number(const Session& session, Registration& registration,
                         const std::string& meta_key) {
  CommunicatorPart* const part = Find(registration.communicator);
  const Member* const member = Find(session);
  const int place = part == nullptr || member == nullptr ? -1 : part->MemberAt(PositionOf(*member));
  if (place < 0 || part->HasDropped(member->rank.value())) {
    return absl::NotFoundError(absl::StrCat("tensor '", registration.name,
                                            "': this rank has no communicator ",
                                            registration.communicator.value(), " (any more)"));
  }
  const int root = registration.meta.root_rank.value();
  if (TraitsOf(registration.meta.kind).rooted && !part->Has(root)) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", registration.name, "': root rank ",
                                                   root, " is no rank of communicator '",
                                                   part->name, "'"));
  }
  if (registration.meta.place == TensorPlace::kDevice) {
    absl::Status status = CheckOnDevice(session, registration);
    if (!status.ok()) return status;
  }
  return part->communicator->Number(registration, meta_key);
}

void Job::Release(const Registration& registration) noexcept {
  CommunicatorPart* const part = Find(registration.communicator);
  if (part == nullptr || part->communicator == nullptr) return;
  part->communicator->Release(registration);
  const std::uint64_t left = part->communicator->table_bytes();
  if (part->table_bytes.bytes() > left)
    part->table_bytes.GiveBack(part->table_bytes.bytes() - left);
}

void Job::PayForTables(CommunicatorId communicator, RegistrationBytes& paid) noexcept {
  CommunicatorPart* const part = Find(communicator);
  if (part == nullptr || part->communicator == nullptr) return;
  const std::uint64_t needed = part->communicator->table_bytes();
  if (needed > part->table_bytes.bytes()) {
    part->table_bytes.TakeOver(paid, needed - part->table_bytes.bytes());
  }
}

absl::StatusOr<std::string> Job::DescribeMismatch(CommunicatorId communicator, std::uint32_t tensor,
                                                  std::span<const std::uint32_t> metas) const {
  const CommunicatorPart* const part = const_cast<Job*>(this)->Find(communicator);
  if (part == nullptr || part->communicator == nullptr) {
    return absl::FailedPreconditionError("there is no such communicator (any more)");
  }
  return part->communicator->DescribeMismatch(tensor, metas);
}

void Job::Submit(const Session& session, const CheckedSubmission& submission,
                 Clock::time_point now) {
  if (world_.communicator == nullptr) {
    // The job failed; there is only this answer left. Whoever completes also wakes, at the turn's
    // end.
    const_cast<Session&>(session).Complete(submission, failure());
    return;
  }
  const int position = PositionOf(*Find(session));
  const CommunicatorId id = submission.registration->communicator;
  if (id == options_.communicator) {
    world_.communicator->Submit(position, submission, now);
    return;
  }
  CommunicatorPart* const part = Find(id);
  const int member = part == nullptr ? -1 : part->MemberAt(position);
  if (member < 0) {
    const_cast<Session&>(session).Complete(
        submission, absl::NotFoundError(absl::StrCat("tensor '", submission.registration->name,
                                                     "': its communicator has been destroyed")));
    return;
  }
  if (part->communicator == nullptr) {
    // Of a failed job, as above: one communicator may go before another.
    const_cast<Session&>(session).Complete(submission, failure());
    return;
  }
  part->communicator->Submit(member, submission, now);
  Activate(*part, now);
}

std::size_t Job::Advance(Clock::time_point now) {
  std::size_t work = AdvanceProbe() + AdvanceRankExchange(now);
  if (agreed_.pending()) return work;
  // Of a job that has failed it may have gone before others that still wait for the backend.
  if (world_.communicator != nullptr) {
    absl::StatusOr<std::size_t> advanced = world_.communicator->Advance(now);
    if (!advanced.ok()) {
      Propose(advanced.status());
      return 1;
    }
    work += *advanced;
  }
  return work + (active_.empty() ? 0 : AdvanceActive(now));
}

bool Job::CopyPiece() {
  if (world_.communicator != nullptr && world_.communicator->CopyPiece()) return true;
  return std::any_of(active_.begin(), active_.end(),
                     [](CommunicatorPart* part) { return part->communicator->CopyPiece(); });
}

void Job::Settle() {
  if (world_.communicator == nullptr) return;
  for (CommunicatorPart* const part : Parts()) part->communicator->Settle();
  for (const auto& [local_rank, member] : members_) {
    if (member.session != nullptr) member.session->FlushCompletions();
  }
}

void Job::TellCoordinator(const absl::Status& cause) {
  if (link_ == nullptr || !greeted_) return;
  v1::NodeMessage message;
  message.mutable_failure()->set_code(static_cast<int>(cause.code()));
  message.mutable_failure()->set_text(std::string(cause.message()));
  for (const CommunicatorPart* const part : Parts()) {
    const MemberNode* const lost = part->communicator->LostNode();
    if (lost != nullptr) message.mutable_failure()->set_lost_node(lost->name);
  }
  link_->Send(std::move(message));
}

void Job::Propose(const absl::Status& cause) {
  const bool others_may_know_more =
      state_ == State::kRunning && link_ != nullptr && membership_->node_count() > 1;
  if (!others_may_know_more) {
    Fail(cause);
  } else if (agreed_.Propose(cause)) {
    TellCoordinator(cause);
  }
}

void Job::Fail(const absl::Status& cause) {
  if (state_ == State::kFailed) return;
  // A proposal has told it already.
  if (!agreed_.pending()) TellCoordinator(cause);
  FailLocally(cause);
}

void Job::FailLocally(const absl::Status& cause) {
  if (!agreed_.Decide(cause)) return;
  state_ = State::kFailed;
  LogError(absl::StrCat("job failed: ", cause.message()), Fields());
  rank_exchange_setup_.reset();
  trace_inquiries_.Clear();
  trace_gatherings_.Fail(absl::FailedPreconditionError(
      absl::StrCat("job '", options_.job_id, "' has failed: ", cause.message())));
  AnswerJoins(cause);
  EndProbe();
  for (CommunicatorPart* const part : Parts()) {
    part->communicator->Fail(cause);
    if (part->number != 0 && !part->communicator->Quiet()) Activate(*part, Clock::now());
  }
  AnswerAsks([](const Ask&) { return true; }, cause, {});
  agreement_.Fail(cause);
  for (const auto& [local_rank, member] : members_) {
    if (member.session == nullptr || member.left) continue;
    member.session->Notify(NoticeKind::kFailure, cause.message());
    member.session->FlushCompletions();
  }
}

}  // namespace ringd
