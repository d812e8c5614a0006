// What the views of several commands are made of.
#ifndef RINGD_CLIENT_CLI_VIEWS_VIEW_PARTS_H_
#define RINGD_CLIENT_CLI_VIEWS_VIEW_PARTS_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "client/cli/views/table.h"
#include "proto/rpc/admin.pb.h"

namespace ringd::cli {

// Of jobs, ranks and ringds: green is good, red is bad, yellow is neither.
Colour StateColour(absl::string_view state);
Cell StateCell(const std::string& state);

// "1 job", "1,234 jobs".
std::string Count(std::uint64_t count, absl::string_view one, absl::string_view many);

std::string OrDash(const std::string& text);

// "  label           text" and a line end. Text that is too long goes on below itself.
std::string Line(absl::string_view label, absl::string_view text, const Look& look);

// What it means that an engine launches without MPS, and what to do.
inline constexpr absl::string_view kEngineWithoutMps =
    "trainers and ringd's engines have a GPU in turns, each for a time slice: let trainers launch "
    "(device_launch), or start ringd-mps.service, and trainers with CUDA_MPS_PIPE_DIRECTORY as it "
    "has";
// Of a GPU that jobs have yet to use.
inline constexpr absl::string_view kWithoutMps =
    "trainers launch what ringd schedules, unless device_launch says otherwise. For engines to "
    "launch, start ringd-mps.service, and trainers with CUDA_MPS_PIPE_DIRECTORY as it has";

// "0-3, 7", of numbers that grow.
std::string Ranges(const google::protobuf::RepeatedField<std::int32_t>& numbers);

// "Nov 24 05:30:12", local time.
std::string LocalTime(double unix_seconds);

// "job run-1" as a paragraph's first words.
std::string JobTitle(const std::string& job_id, const Look& look);

// A line with a failure's cause; empty if there is none.
std::string FailureLine(const std::string& failure, const Look& look);

// A paragraph: since when a job is stalled, and why.
std::string StallParagraph(const std::string& job_id, const v1::Stall& stall, const Look& look);

// "No jobs on this node." and a line end.
std::string NothingHere(absl::string_view what, std::uint32_t hidden_jobs);
// A list is empty, and so many engines have not answered.
std::string NothingHeard(int unanswered);
// The same as NothingHere, of one job that was asked for.
std::string NothingOfJob(absl::string_view what, absl::string_view job_id);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_VIEWS_VIEW_PARTS_H_
