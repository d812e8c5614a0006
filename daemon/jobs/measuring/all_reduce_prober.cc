#include "daemon/jobs/measuring/all_reduce_prober.h"

#include <span>
#include <string>
#include <utility>

#include "daemon/peers/measurement_conversion.h"

namespace ringd {
namespace {

// What a buffer begins with: an AllReduceTrial::Word.
constexpr std::size_t kElapsed = 0;
constexpr std::size_t kFlatMayWin = 1;

// The first that a learned bucket gets; who is in the middle follows from it.
constexpr std::uint32_t kChannel = 1;

static_assert(kTriedBytes.front() >= 2 * sizeof(double));

}  // namespace

AllReduceProber::AllReduceProber(std::unique_ptr<Communicator> communicator)
    : buffer_(kTriedBytes.back() / sizeof(double)), communicator_(std::move(communicator)) {}

absl::StatusOr<std::unique_ptr<StartProbe>> AllReduceProber::Start(Transport& transport,
                                                                   const v1::ProbedNodes& nodes,
                                                                   const ProbeTerms& terms) {
  auto communicator = MakeProbeCommunicator(transport, nodes, terms);
  if (!communicator.ok()) return communicator.status();
  std::unique_ptr<AllReduceProber> prober(new AllReduceProber(*std::move(communicator)));
  if (!prober->PostNext()) return absl::InternalError("the backend takes no all-reduce");
  return prober;
}

bool AllReduceProber::PostNext() {
  const AllReduceTrial::Step step = trial_.step();
  buffer_[kElapsed] = trial_.word().elapsed_seconds;
  buffer_[kFlatMayWin] = trial_.word().flat_may_win;
  CollectiveRequest request;
  request.id = {kChannel, sequence_++};
  request.data_type = DataType::kFloat64;
  request.op = ReduceOp::kMax;
  request.element_count = step.bytes / sizeof(double);
  request.buffer = std::as_writable_bytes(std::span(buffer_)).data();
  request.algorithm = step.flat ? AllReduceAlgorithm::kFlat : AllReduceAlgorithm::kDoubling;
  return communicator_->TryPost(request);
}

std::optional<v1::NodeMessage> AllReduceProber::Poll() {
  v1::NodeMessage message;
  v1::TrialReport& report = *message.mutable_trial_report();
  for (;;) {
    Completion completion;
    if (communicator_ == nullptr || communicator_->Poll({&completion, 1}) == 0) return std::nullopt;
    if (completion.outcome != CollectiveOutcome::kDone) {
      report.set_error(DescribeEnd(completion, *communicator_));
      break;
    }
    trial_.OnDone(completion.times.finished, {buffer_[kElapsed], buffer_[kFlatMayWin]});
    if (trial_.over()) {
      for (const AllReduceTimes& times : trial_.times()) *report.add_times() = ToProto(times);
      break;
    }
    // There is room for one: nothing else is in flight.
    if (!PostNext()) {
      report.set_error("the backend takes no all-reduce");
      break;
    }
  }
  communicator_.reset();
  return message;
}

void AllReduceProber::Abort(absl::string_view reason) {
  if (communicator_ != nullptr) communicator_->Abort(reason);
}

}  // namespace ringd
