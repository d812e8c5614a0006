#include "daemon/jobs/plans/plan_file.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/peers/measurement_conversion.h"
#include "daemon/peers/schedule_conversion.h"
#include "proto/rpc/kept_plans.pb.h"

namespace ringd {
namespace {

constexpr std::uint32_t kVersion = 1;

constexpr std::size_t kMaxNameBytes = 512;
constexpr double kLongestUs = 24 * 3600 * 1e6;
// Seconds beyond this are not from a clock.
constexpr std::uint64_t kLatest = std::uint64_t{1} << 40;

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("it holds ", what));
}

bool IsSaneName(const std::string& name) { return !name.empty() && name.size() <= kMaxNameBytes; }

bool IsSaneTime(double us) { return std::isfinite(us) && us >= 0 && us <= kLongestUs; }

std::chrono::nanoseconds FromMicroseconds(double us) {
  return std::chrono::nanoseconds(std::llround(us * 1e3));
}

double ToMicroseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1e3;
}

absl::StatusOr<StoredLink> Read(const v1::KeptNodeLink& link) {
  const auto checked = CheckedLink(link.latency_us(), link.bytes_per_second());
  if (!IsSaneName(link.from()) || !IsSaneName(link.to()) || link.from() == link.to() ||
      link.measured_unix_seconds() > kLatest || !checked.has_value()) {
    return Malformed("a link between nodes that can't be");
  }
  return StoredLink{link.from(), link.to(), *checked,
                    static_cast<std::int64_t>(link.measured_unix_seconds())};
}

absl::StatusOr<StoredTrial> Read(const v1::KeptTrial& trial) {
  absl::StatusOr<std::vector<AllReduceTimes>> times = FromProto(trial.times());
  if (!times.ok() || trial.nodes().empty() || trial.measured_unix_seconds() > kLatest ||
      !std::all_of(trial.nodes().begin(), trial.nodes().end(), IsSaneName)) {
    return Malformed("small all-reduces that can't be");
  }
  return StoredTrial{{trial.nodes().begin(), trial.nodes().end()},
                     *std::move(times),
                     static_cast<std::int64_t>(trial.measured_unix_seconds())};
}

absl::StatusOr<KeptTensor> Read(const v1::KeptTensor& tensor) {
  if (!IsSaneName(tensor.name())) {
    return Malformed(absl::StrCat("a tensor name of ", tensor.name().size(), " bytes"));
  }
  if (!IsSaneTime(tensor.ready_us())) {
    return Malformed(absl::StrCat("a tensor that is ready after ", tensor.ready_us(), " us"));
  }
  absl::StatusOr<TensorMeta> meta = FromProto(tensor.meta());
  if (!meta.ok()) return Malformed(absl::StrCat("tensor '", tensor.name(), "' described wrongly"));
  return KeptTensor{tensor.name(), *std::move(meta), FromMicroseconds(tensor.ready_us()),
                    tensor.follows_wait()};
}

absl::StatusOr<KeptPlan> Read(const v1::KeptPlan& plan) {
  KeptPlan result;
  if (plan.has_link()) {
    const v1::KeptLink& link = plan.link();
    if (!IsSaneTime(link.latency_us()) || !std::isfinite(link.bytes_per_second()) ||
        link.bytes_per_second() <= 0) {
      return Malformed("a link that can't be");
    }
    result.link_measured = true;
    result.latency = FromMicroseconds(link.latency_us());
    result.bytes_per_second = link.bytes_per_second();
  }
  std::set<absl::string_view> names;
  for (const v1::KeptBucket& bucket : plan.buckets()) {
    if (bucket.tensors().empty()) return Malformed("a bucket without tensors");
    KeptBucket& tensors = result.buckets.emplace_back();
    for (const v1::KeptTensor& tensor : bucket.tensors()) {
      absl::StatusOr<KeptTensor> read = Read(tensor);
      if (!read.ok()) return read.status();
      if (!names.insert(tensor.name()).second) {
        return Malformed(absl::StrCat("tensor '", tensor.name(), "' twice in one plan"));
      }
      tensors.push_back(*std::move(read));
    }
  }
  return result;
}

// Those with too many tensors for so many bytes: no tensor takes less than that, and with many of
// them it costs much to find out what they take.
void DropLastPlans(KeptState& state, std::size_t most_bytes) {
  constexpr std::size_t kLeastTensorBytes = 24;
  std::size_t tensors = 0;
  const auto first_too_many =
      std::find_if(state.plans.begin(), state.plans.end(), [&](const StoredPlan& stored) {
        tensors += TensorCount(*stored.plan);
        return tensors > most_bytes / kLeastTensorBytes;
      });
  state.plans.erase(first_too_many, state.plans.end());
}

}  // namespace

std::string HashText(absl::string_view text) {
  // FNV-1a. What is found by it is compared before it is used: it need not be more than even.
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return absl::StrFormat("%016x", hash);
}

std::string TensorsKey(const KeptPlan& plan) {
  std::vector<std::string> descriptions;
  for (const KeptBucket& bucket : plan.buckets) {
    for (const KeptTensor& tensor : bucket) {
      const std::string meta = ToProto(tensor.meta).SerializeAsString();
      descriptions.push_back(
          absl::StrCat(tensor.name.size(), ":", tensor.name, meta.size(), ":", meta));
    }
  }
  std::sort(descriptions.begin(), descriptions.end());
  std::string all;
  for (const std::string& description : descriptions) absl::StrAppend(&all, description);
  return HashText(all);
}

std::size_t TensorCount(const KeptPlan& plan) {
  std::size_t count = 0;
  for (const KeptBucket& bucket : plan.buckets) count += bucket.size();
  return count;
}

std::string FormatState(const KeptState& state) {
  v1::KeptPlans file;
  file.set_version(kVersion);
  for (const StoredPlan& stored : state.plans) {
    v1::KeptPlan* plan = file.add_plans();
    plan->set_nodes(stored.nodes);
    plan->set_tensors(stored.tensors);
    if (stored.plan->link_measured) {
      plan->mutable_link()->set_latency_us(ToMicroseconds(stored.plan->latency));
      plan->mutable_link()->set_bytes_per_second(stored.plan->bytes_per_second);
    }
    for (const KeptBucket& bucket : stored.plan->buckets) {
      v1::KeptBucket* tensors = plan->add_buckets();
      for (const KeptTensor& tensor : bucket) {
        v1::KeptTensor* entry = tensors->add_tensors();
        entry->set_name(tensor.name);
        *entry->mutable_meta() = ToProto(tensor.meta);
        entry->set_ready_us(ToMicroseconds(tensor.ready_offset));
        entry->set_follows_wait(tensor.follows_wait);
      }
    }
  }
  for (const StoredLink& stored : state.links) {
    v1::KeptNodeLink* link = file.add_links();
    link->set_from(stored.from);
    link->set_to(stored.to);
    link->set_latency_us(ToMicroseconds(stored.link.latency));
    link->set_bytes_per_second(stored.link.bytes_per_second);
    link->set_measured_unix_seconds(static_cast<std::uint64_t>(stored.unix_seconds));
  }
  for (const StoredTrial& stored : state.trials) {
    v1::KeptTrial* trial = file.add_trials();
    for (const std::string& node : stored.nodes) trial->add_nodes(node);
    for (const AllReduceTimes& times : stored.times) *trial->add_times() = ToProto(times);
    trial->set_measured_unix_seconds(static_cast<std::uint64_t>(stored.unix_seconds));
  }
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(file, &json, options).ok()) return "";
  return json + "\n";
}

std::string FormatBounded(KeptState state, std::size_t most_bytes) {
  DropLastPlans(state, most_bytes);
  std::string text = FormatState(state);
  return text.size() <= most_bytes ? text : FormatState(Bounded(std::move(state), most_bytes));
}

KeptState Bounded(KeptState state, std::size_t most_bytes) {
  DropLastPlans(state, most_bytes);
  // Of a part that takes so many bytes, those that are more than `over` too many, or all but half.
  const auto shrink = [](auto& entries, std::size_t bytes, std::size_t over) {
    const double share =
        over < bytes ? static_cast<double>(bytes - over) / static_cast<double>(bytes) : 0.5;
    const auto kept = static_cast<std::size_t>(static_cast<double>(entries.size()) * share);
    entries.resize(std::min(kept, entries.size() - 1));
  };
  for (;;) {
    const std::size_t plans = FormatState({state.plans, {}, {}}).size();
    const std::size_t links = FormatState({{}, state.links, {}}).size();
    const std::size_t trials = FormatState({{}, {}, state.trials}).size();
    const std::size_t all = plans + links + trials;
    if (all <= most_bytes) return state;
    const std::size_t over = all - most_bytes;
    const std::size_t most = std::max({plans, links, trials});
    if (most == plans && !state.plans.empty()) {
      shrink(state.plans, plans, over);
    } else if (most == links && !state.links.empty()) {
      shrink(state.links, links, over);
    } else if (!state.trials.empty()) {
      shrink(state.trials, trials, over);
    } else {
      return {};
    }
  }
}

absl::StatusOr<ParsedState> ParseState(absl::string_view text) {
  v1::KeptPlans file;
  const auto json = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(text.data(), text.size()), &file);
  if (!json.ok()) return Malformed("no such JSON as ringd writes");
  if (file.version() != kVersion) {
    return Malformed(absl::StrCat("version ", file.version(), ", not ", kVersion));
  }
  ParsedState parsed;
  const auto is_sound = [&parsed](const absl::Status& read) {
    if (!read.ok()) parsed.left_out.emplace_back(read.message());
    return read.ok();
  };
  for (const v1::KeptPlan& plan : file.plans()) {
    absl::StatusOr<KeptPlan> read = Read(plan);
    if (!is_sound(read.status())) continue;
    parsed.state.plans.push_back(
        {plan.nodes(), plan.tensors(), std::make_shared<const KeptPlan>(*std::move(read))});
  }
  for (const v1::KeptNodeLink& link : file.links()) {
    absl::StatusOr<StoredLink> read = Read(link);
    if (is_sound(read.status())) parsed.state.links.push_back(*std::move(read));
  }
  for (const v1::KeptTrial& trial : file.trials()) {
    absl::StatusOr<StoredTrial> read = Read(trial);
    if (is_sound(read.status())) parsed.state.trials.push_back(*std::move(read));
  }
  return parsed;
}

}  // namespace ringd
