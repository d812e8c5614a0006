#include "client/cli/views/view_parts.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cli/views/human_units.h"
#include "proto/base/text.h"

namespace ringd::cli {
namespace {

// Labels of a block's lines are padded to this.
constexpr std::size_t kLabelWidth = 14;

}  // namespace

Colour StateColour(absl::string_view state) {
  if (state == "running" || state == "serving" || state == "done") return Colour::kGreen;
  if (state == "failed" || state == "dead") return Colour::kRed;
  if (state.empty()) return Colour::kNone;
  return Colour::kYellow;  // joining, stalled, stopped, left, draining
}

Cell StateCell(const std::string& state) {
  return {state.empty() ? "-" : state, StateColour(state)};
}

std::string Count(std::uint64_t count, absl::string_view one, absl::string_view many) {
  return absl::StrCat(HumanCount(count), " ", count == 1 ? one : many);
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string Line(absl::string_view label, absl::string_view text, const Look& look) {
  std::string padded(label);
  padded.resize(std::max(kLabelWidth, label.size()), ' ');
  const std::string indent(padded.size() + 4, ' ');
  return absl::StrCat("  ", padded, "  ",
                      WrapWords(Paint(text, Colour::kNone, false), indent, look.width), "\n");
}

std::string Ranges(const google::protobuf::RepeatedField<std::int32_t>& numbers) {
  std::vector<std::string> parts;
  for (int first = 0; first < numbers.size();) {
    int last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (last - first < 2) last = first;  // two are no range
    parts.push_back(first == last ? absl::StrCat(numbers[first])
                                  : absl::StrCat(numbers[first], "-", numbers[last]));
    first = last + 1;
  }
  return absl::StrJoin(parts, ", ");
}

std::string LocalTime(double unix_seconds) {
  const absl::Time time = absl::FromUnixSeconds(static_cast<std::int64_t>(unix_seconds));
  return absl::FormatTime("%b %d %H:%M:%S", time, absl::LocalTimeZone());
}

std::string JobTitle(const std::string& job_id, const Look& look) {
  return Paint(absl::StrCat("job ", job_id), Colour::kBold, look.colours);
}

std::string FailureLine(const std::string& failure, const Look& look) {
  if (failure.empty()) return "";
  return absl::StrCat("  ", Paint(failure, Colour::kRed, look.colours), "\n");
}

std::string StallParagraph(const std::string& job_id, const v1::Stall& stall, const Look& look) {
  return absl::StrCat("\n", JobTitle(job_id, look), " is stalled since ",
                      HumanDuration(stall.seconds()), ":\n  ",
                      Paint(stall.why(), Colour::kYellow, look.colours), "\n");
}

std::string NothingHere(absl::string_view what, std::uint32_t hidden_jobs) {
  return absl::StrCat("No ", what, hidden_jobs > 0 ? " of this user" : "", " on this node.\n");
}

std::string NothingHeard(int unanswered) {
  const auto count = static_cast<std::uint64_t>(unanswered);
  return absl::StrCat("Not known: ", Count(count, "engine", "engines"), " that might tell ",
                      unanswered == 1 ? "has" : "have", " not answered.\n");
}

std::string NothingOfJob(absl::string_view what, absl::string_view job_id) {
  return absl::StrCat("No ", what, " of a job '", CleanLine(job_id), "' on this node.\n");
}

}  // namespace ringd::cli
