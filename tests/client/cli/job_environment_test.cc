#include "client/cli/run/job_environment.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

namespace ringd::cli {
namespace {

JobPlan TwoNodes() {
  JobPlan plan;
  plan.job_id = "run-1";
  plan.secret = "s";
  plan.ranks_per_node = 2;
  plan.nodes = {{"/tmp/a.sock", "127.0.0.1:1"}, {"/tmp/b.sock", "127.0.0.1:2"}};
  plan.master_port = 29500;
  return plan;
}

bool Has(const std::vector<std::string>& environment, const std::string& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}

}  // namespace

TEST_CASE("RankEnvironment: places, node and rendezvous of a rank on the second node") {
  const std::vector<std::string> environment = RankEnvironment(TwoNodes(), 3, {});
  for (const char* entry :
       {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1",
        "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "RINGD_SOCKET=/tmp/b.sock",
        "RINGD_RENDEZVOUS=127.0.0.1:1", "RINGD_JOB_ID=run-1", "RINGD_JOB_SECRET=s",
        "OMP_NUM_THREADS=1", "PYTHONUNBUFFERED=1"}) {
    INFO(entry);
    CHECK(Has(environment, entry));
  }
  CHECK(std::none_of(environment.begin(), environment.end(), [](const std::string& entry) {
    return entry.rfind("RINGD_START_TIMEOUT", 0) == 0 || entry.rfind("RINGD_WEIGHT", 0) == 0;
  }));
}

TEST_CASE("RankEnvironment: replaces stale places and keeps what the user chose") {
  JobPlan plan = TwoNodes();
  plan.start_timeout_seconds = 2.5;
  plan.weight = 3;
  const std::vector<std::string> environment =
      RankEnvironment(plan, 0,
                      {"RANK=9", "RANKING=x", "OMP_NUM_THREADS=4", "RINGD_SOCKET=/old",
                       "HOME=/root", "RINGD_WEIGHT=9"});
  CHECK(Has(environment, "RANK=0"));
  CHECK_FALSE(Has(environment, "RANK=9"));
  CHECK_FALSE(Has(environment, "RINGD_SOCKET=/old"));
  CHECK(Has(environment, "RANKING=x"));
  CHECK(Has(environment, "HOME=/root"));
  CHECK(Has(environment, "OMP_NUM_THREADS=4"));
  CHECK_FALSE(Has(environment, "OMP_NUM_THREADS=1"));
  CHECK(Has(environment, "RINGD_START_TIMEOUT=2.5"));
  CHECK(Has(environment, "RINGD_WEIGHT=3"));
  CHECK_FALSE(Has(environment, "RINGD_WEIGHT=9"));
}

}  // namespace ringd::cli
