// CommunicatorSchedule's answer to "who are we waiting for?": ask every node, then tell every node.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/coordinator/communicator_schedule.h"
#include "daemon/sessions/registration.h"

namespace ringd {
namespace {

constexpr std::size_t kTensorsOfReport = 16;
constexpr std::size_t kTensorsAskedFor = 2 * kTensorsOfReport;
constexpr std::size_t kTensorsNamed = 3;
// Of a verdict, which goes to every node: of its parts, of the sentences of its text, and of those
// for whom one tensor waits.
constexpr int kRanksTold = 64;
constexpr std::size_t kSentencesTold = 64;
constexpr int kAwaitedTold = 8;
// So long the GPUs of all ranks may be busy with what comes before an operation, which is no stall.
constexpr std::chrono::seconds kComputing{60};

std::string NameSome(const std::vector<std::string>& tensors) {
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(tensors.size(), kTensorsNamed); ++i) {
    named.push_back(absl::StrCat("'", tensors[i], "'"));
  }
  std::string text = absl::StrJoin(named, ", ");
  if (tensors.size() > kTensorsNamed) {
    absl::StrAppend(&text, " and ", tensors.size() - kTensorsNamed, " more");
  }
  return text;
}

void AddAwaited(const v1::MissingRank& missing, const std::string& host,
                v1::StallVerdict& verdict) {
  if (verdict.ranks_size() == kRanksTold) {
    verdict.set_ranks_left_out(verdict.ranks_left_out() + 1);
    return;
  }
  v1::AwaitedRank& awaited = *verdict.add_ranks();
  awaited.set_rank(missing.rank());
  awaited.set_pid(missing.pid());
  awaited.set_host(host);
  awaited.set_state(missing.state());
  const int named = std::min(missing.tensors_size(), static_cast<int>(kTensorsNamed));
  for (int i = 0; i < named; ++i) awaited.add_tensors(missing.tensors(i));
}

void AddWaitsFor(const std::string& who, v1::StalledTensor& tensor) {
  if (tensor.waits_for_size() == kAwaitedTold) {
    tensor.set_waits_for_left_out(tensor.waits_for_left_out() + 1);
  } else {
    tensor.add_waits_for(who);
  }
}

// Why, as far as nobody is missing.
std::string DescribeComplete(std::size_t node_count, bool moving, bool on_gpus) {
  if (moving) {
    return on_gpus ? "and NCCL is at others" : "and the data between the nodes is under way";
  }
  if (on_gpus) return "but NCCL has not ended it";
  return node_count == 1 ? "but it does not end" : "but the data between the nodes does not arrive";
}

std::string DescribeLack(const v1::MissingRank& missing, const std::string& tensors) {
  if (missing.not_ready()) return absl::StrCat("has not got ", tensors, " ready on its GPU");
  return absl::StrCat(missing.submitted() ? "does not go on with " : "has not submitted ", tensors);
}

}  // namespace

void CommunicatorSchedule::OnStallReport(const v1::StallReport& report, Clock::time_point now) {
  // Ranks that submit in different orders wait for different tensors, and their nodes report that
  // at once. A node keeps the latest verdict alone, so the next inquiry is about all of them.
  Stall stall;
  if (inquiry_.open) stall = next_stall_.value_or(inquiry_.stall);
  const std::size_t known = stall.tensors.size();
  for (const std::string& tensor : report.tensors()) {
    if (stall.tensors.size() >= known + kTensorsOfReport) break;
    if (stall.tensors.size() >= kTensorsAskedFor || tensor.size() > kMaxTensorNameBytes) continue;
    if (std::ranges::find(stall.tensors, tensor) != stall.tensors.end()) continue;
    stall.tensors.push_back(tensor);
  }
  if (stall.tensors.size() == known) return;
  stall.reported = now;
  stall.waiting_seconds = report.waiting_seconds();
  if (inquiry_.open) {
    next_stall_ = std::move(stall);
  } else {
    Inquire(std::move(stall), now);
  }
}

void CommunicatorSchedule::Inquire(Stall stall, Clock::time_point now) {
  inquiry_.open = true;
  inquiry_.asked = now;
  ++inquiry_.number;
  inquiry_.stall = std::move(stall);
  inquiry_.answers.clear();
  v1::CoordinatorMessage message;
  message.mutable_stall_inquiry()->set_inquiry(inquiry_.number);
  for (const std::string& tensor : inquiry_.stall.tensors) {
    message.mutable_stall_inquiry()->add_tensors(tensor);
  }
  Broadcast(std::move(message));
}

void CommunicatorSchedule::Conclude(Clock::time_point now) {
  v1::CoordinatorMessage message;
  v1::StallVerdict& verdict = *message.mutable_stall_verdict();
  std::map<std::string, v1::StalledTensor*> tensors;
  for (const std::string& name : inquiry_.stall.tensors) {
    v1::StalledTensor* const tensor = verdict.add_tensors();
    tensor->set_name(name);
    tensors[name] = tensor;
  }
  std::vector<std::string> sentences;
  std::size_t left_out = 0;
  const auto say = [&](std::string sentence) {
    if (sentences.size() < kSentencesTold) {
      sentences.push_back(std::move(sentence));
    } else {
      ++left_out;
    }
  };
  bool moving = false;
  bool on_gpus = false;
  bool all_else_there = true;  // nothing is missing but what GPUs still have to make
  std::set<int> not_ready;     // ranks whose GPUs do
  std::size_t ranks = 0;
  for (const auto& [link, node, index] : nodes_) {
    ranks += node.ranks.size();
    const auto answer = inquiry_.answers.find(link);
    if (answer == inquiry_.answers.end()) {
      all_else_there = false;
      say(absl::StrCat("ringd on ", DescribeNode(node), " does not answer"));
      for (const auto& [name, tensor] : tensors) AddWaitsFor(node.name, *tensor);
      continue;
    }
    moving = moving || answer->second.moving();
    on_gpus = on_gpus || answer->second.on_gpus();
    for (const v1::MissingRank& missing : answer->second.missing()) {
      std::string who = DescribeRank(Rank(missing.rank()), missing.pid(), node.name);
      if (missing.state() != "running") absl::StrAppend(&who, " (", missing.state(), ")");
      const std::vector<std::string> names(missing.tensors().begin(), missing.tensors().end());
      AddAwaited(missing, node.name, verdict);
      say(absl::StrCat(who, " ", DescribeLack(missing, NameSome(names))));
      // One that is stopped does not compute.
      all_else_there = all_else_there && missing.not_ready() && missing.state() == "running";
      if (missing.not_ready()) not_ready.insert(missing.rank());
      for (const std::string& name : names) {
        if (const auto found = tensors.find(name); found != tensors.end()) {
          AddWaitsFor(who, *found->second);
        }
      }
    }
  }
  char waited[32];
  const double seconds = inquiry_.stall.waiting_seconds +
                         std::chrono::duration<double>(now - inquiry_.stall.reported).count();
  std::snprintf(waited, sizeof(waited), "%.1f s", seconds);
  if (sentences.empty()) {
    verdict.set_under_way(moving);
    say(absl::StrCat("every rank has submitted ", NameSome(inquiry_.stall.tensors), ", ",
                     DescribeComplete(nodes_.size(), moving, on_gpus)));
  } else if (all_else_there &&
             (moving || (not_ready.size() == ranks && seconds < kComputing.count()))) {
    // Hosts run ahead of their GPUs, all of them: nobody waits for anybody. Or for one whose turn
    // comes, as it has come for others.
    verdict.set_under_way(true);
  }
  if (left_out > 0) sentences.push_back(absl::StrCat("and ", left_out, " more like that"));
  verdict.set_waiting_seconds(seconds);
  verdict.set_why(absl::StrJoin(sentences, "; "));
  const std::string where =
      options_.name.empty() ? "" : absl::StrCat(" on communicator '", options_.name, "'");
  verdict.set_text(absl::StrCat("waiting", where, " since ", waited, ": ", verdict.why()));
  Broadcast(std::move(message));
  inquiry_.open = false;
  if (auto next = std::exchange(next_stall_, std::nullopt)) Inquire(*std::move(next), now);
}

}  // namespace ringd
