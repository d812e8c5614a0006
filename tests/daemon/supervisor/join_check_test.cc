#include "daemon/supervisor/join_check.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "proto/types/job_weight.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

const std::string kSecret = "a secret of many characters";

v1::JoinRequest RequestOf(int local_size, const std::string& secret,
                          const std::string& rendezvous = "") {
  v1::JoinRequest request;
  request.set_job_id("train");
  request.set_size(2);
  request.set_local_size(local_size);
  request.set_secret(secret);
  request.set_rendezvous(rendezvous);
  return request;
}

struct Here {
  Config config;
  std::string host = "10.0.0.9";
  bool has_cluster_key = false;

  Here() { config.node_name = "node-a"; }
  absl::Status Check(const v1::JoinRequest& request) const {
    return CheckJoin(request, {config, host + ":7117", has_cluster_key});
  }
};

TEST_CASE("CheckPlaces: names, sizes and places have bounds") {
  CHECK(CheckPlaces(RequestOf(1, "")).ok());
  using Change = std::function<void(v1::JoinRequest&)>;
  const std::vector<std::pair<Change, std::string>> wrong = {
      {[](auto& request) { request.set_job_id(""); }, "a job id has 1 to 256 bytes, not 0"},
      {[](auto& request) { request.set_job_id(std::string(257, 'x')); }, "not 257"},
      {[](auto& request) { request.set_size(0); }, "size 0"},
      {[](auto& request) { request.set_size(65'537); }, "size 65537"},
      {[](auto& request) { request.set_rank(-1); }, "rank -1"},
      {[](auto& request) { request.set_rank(2); }, "rank 2 is not one of 0 to 1"},
      {[](auto& request) { request.set_local_size(0); }, "local size 0"},
      {[](auto& request) { request.set_local_size(3); }, "local size 3"},
      {[](auto& request) { request.set_local_rank(-1); }, "local rank -1"},
      {[](auto& request) { request.set_local_rank(1); }, "local rank 1"},
      {[](auto& request) { request.set_weight(kMaxJobWeight + 1); }, "weight"},
      {[](auto& request) { request.set_secret(std::string(4097, 'x')); }, "secret"},
  };
  for (const auto& [change, words] : wrong) {
    v1::JoinRequest request = RequestOf(1, "");
    change(request);
    const absl::Status refused = CheckPlaces(request);
    CHECK(absl::IsInvalidArgument(refused));
    CHECK_THAT(std::string(refused.message()), Contains(words));
  }
}

TEST_CASE("CheckJoin: a rank asks for no more weight than the node allows, and a known fusion") {
  Here here;
  here.config.max_weight = 4;
  v1::JoinRequest request = RequestOf(2, "");
  request.set_weight(4);
  request.set_fusion("learned");
  CHECK(here.Check(request).message() == "");
  request.set_weight(5);
  CHECK_THAT(std::string(here.Check(request).message()),
             Contains("job 'train': rank 0 asks for weight 5 (RINGD_WEIGHT)") &&
                 Contains("node-a allows at most 4") && Contains("max_weight"));
  request.set_weight(1);
  request.set_fusion("some");
  const absl::Status refused = here.Check(request);
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), Contains("fusion 'some'") && Contains("RINGD_FUSION"));
}

TEST_CASE(
    "CheckJoin: a job over several nodes that strangers could join is refused, with both "
    "ways out") {
  const absl::Status refused = Here().Check(RequestOf(1, GENERATE("", "fifteen letters")));
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Contains("cluster_key_file") &&
                                                 Contains("RINGD_JOB_SECRET") &&
                                                 Contains("insecure_peers") && Contains("train"));
}

TEST_CASE("CheckJoin: one that serves the loopback alone takes no job over several nodes") {
  Here here;
  here.host = "127.0.0.1";
  here.has_cluster_key = GENERATE(false, true);
  const absl::Status refused = here.Check(RequestOf(1, "", "node-a:7117"));
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Contains("serves 127.0.0.1 only") &&
                                                 Contains("peer_interface") &&
                                                 Contains("peer_address") && Contains("node-a"));
  // Two ringds of one machine find each other there.
  CHECK(here.Check(RequestOf(1, kSecret, "127.0.0.1:7118")).ok());
}

TEST_CASE("CheckJoin: names all that is missing for several nodes in one error") {
  Here here;
  here.host = "127.0.0.1";
  CHECK_THAT(std::string(here.Check(RequestOf(1, "", "node-a:7117")).message()),
             Contains("serves 127.0.0.1 only") && Contains("cluster_key_file") &&
                 Contains("RINGD_JOB_SECRET"));
}

TEST_CASE("CheckJoin: a cluster key, a secret of 16 characters or insecure_peers is enough") {
  Here with_key;
  with_key.has_cluster_key = true;
  CHECK(with_key.Check(RequestOf(1, "")).ok());
  CHECK(Here().Check(RequestOf(1, "sixteen letters.")).ok());
  Here insecure;
  insecure.config.insecure_peers = true;
  CHECK(insecure.Check(RequestOf(1, "")).ok());
}

TEST_CASE("CheckJoin: a job of one node needs neither cluster key nor secret") {
  CHECK(Here().Check(RequestOf(2, "")).ok());
}

}  // namespace
}  // namespace ringd
