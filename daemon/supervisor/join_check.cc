#include "daemon/supervisor/join_check.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/fusion_setting.h"
#include "daemon/config/host_port.h"
#include "proto/base/text.h"
#include "proto/types/job_weight.h"

namespace ringd {
namespace {

// Of one job. A bound on what a wrong or hostile size can cost, far above what is in use.
constexpr int kMaxRanks = 65'536;
// A secret that nobody guesses who can try guesses on a proof at leisure.
constexpr std::size_t kLeastSecretBytes = 16;

absl::Status CheckWishes(const v1::JoinRequest& request, const Config& config) {
  const std::string who =
      absl::StrCat("job '", request.job_id(), "': rank ", request.rank(), " asks for ");
  const std::uint32_t weight = JobWeightOrDefault(request.weight());
  if (weight > config.max_weight) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, "weight ", weight, " (RINGD_WEIGHT), but ringd on ", config.node_name,
                     " allows at most ", config.max_weight, " (its setting max_weight)"));
  }
  if (request.fusion().empty()) return absl::OkStatus();
  const absl::Status fusion = ParseFusion(request.fusion()).status();
  if (fusion.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(who, "fusion '", CutToLength(request.fusion(), 64),
                                                 "' (RINGD_FUSION); ", fusion.message()));
}

absl::Status CheckForOtherNodes(const v1::JoinRequest& request, const JoinRules& rules) {
  if (request.size() == request.local_size()) return absl::OkStatus();
  std::vector<std::string> missing;
  const absl::StatusOr<HostPort> here = ParseHostPort(rules.peer_address);
  const absl::StatusOr<HostPort> rendezvous = ParseHostPort(request.rendezvous());
  if (here.ok() && IsLoopback(here->host) && rendezvous.ok() && !IsLoopback(rendezvous->host)) {
    missing.push_back(absl::StrCat(
        "ringd on ", rules.config.node_name, " serves ", here->host,
        " only, where no other node reaches it: set peer_interface (such as \"eth0\") or "
        "peer_address in its ringd.toml"));
  }
  if (!rules.has_cluster_key && request.secret().size() < kLeastSecretBytes &&
      !rules.config.insecure_peers) {
    missing.push_back(absl::StrCat(
        "neither a cluster key (cluster_key_file in ringd.toml; `openssl rand -hex 32`) nor a job "
        "secret of ",
        kLeastSecretBytes,
        " characters or more (RINGD_JOB_SECRET) says who may take part; insecure_peers = true does "
        "without"));
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("job '", request.job_id(),
                                                    "': this job spans several nodes, and ",
                                                    absl::StrJoin(missing, "; and ")));
}

}  // namespace

absl::Status CheckPlaces(const v1::JoinRequest& request) {
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (request.job_id().empty() || request.job_id().size() > 256) {
    return wrong("a job id has 1 to 256 bytes, not ", request.job_id().size());
  }
  if (request.size() < 1 || request.size() > kMaxRanks) {
    return wrong("size ", request.size(), " is not one of 1 to ", kMaxRanks);
  }
  if (request.rank() < 0 || request.rank() >= request.size()) {
    return wrong("rank ", request.rank(), " is not one of 0 to ", request.size() - 1);
  }
  if (request.local_size() < 1 || request.local_size() > request.size()) {
    return wrong("local size ", request.local_size(), " is not one of 1 to ", request.size());
  }
  if (request.local_rank() < 0 || request.local_rank() >= request.local_size()) {
    return wrong("local rank ", request.local_rank(), " is not one of 0 to ",
                 request.local_size() - 1);
  }
  if (JobWeightOrDefault(request.weight()) > kMaxJobWeight) {
    return wrong("weight ", request.weight(), " is not one of ", kMinJobWeight, " to ",
                 kMaxJobWeight);
  }
  if (request.secret().size() > kMostSecretBytes) {
    return wrong("a job secret has at most ", kMostSecretBytes, " bytes");
  }
  return absl::OkStatus();
}

absl::Status CheckJoin(const v1::JoinRequest& request, const JoinRules& rules) {
  if (absl::Status status = CheckWishes(request, rules.config); !status.ok()) return status;
  return CheckForOtherNodes(request, rules);
}

}  // namespace ringd
