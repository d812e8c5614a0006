// What ringd answers, as text for people.
#ifndef RINGD_CLIENT_CLI_VIEWS_VIEWS_H_
#define RINGD_CLIENT_CLI_VIEWS_VIEWS_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <string>

#include "client/cli/views/table.h"
#include "proto/rpc/admin.pb.h"

namespace ringd::cli {

// Each ends in a line end. An empty list is a sentence that says so. Tables fit look.width;
// sentences are as long as they are.
std::string RenderStatus(const v1::StatusReply& reply, const Look& look);
std::string RenderDrain(const v1::DrainReply& reply);
std::string RenderGpus(const v1::GpusReply& reply, const Look& look);
// `ended`: jobs that have ended are among them.
std::string RenderJobs(const v1::JobsReply& reply, bool ended, const Look& look);
std::string RenderCommunicators(const v1::CommunicatorsReply& reply, const Look& look);
std::string RenderQueues(const v1::QueuesReply& reply, const Look& look);

// A line that says how many jobs of other users a list leaves out; empty if it leaves out none.
std::string RenderHiddenJobs(std::uint32_t hidden_jobs);

// A line for standard error for each engine that has not answered, and so is missing in a list.
std::string RenderUnanswered(const google::protobuf::RepeatedPtrField<std::string>& unanswered);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_VIEWS_VIEWS_H_
