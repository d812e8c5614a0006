#include "daemon/jobs/job.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

Job::Options OptionsOf(std::optional<std::uint32_t> generation) {
  Job::Options options;
  options.job_id = "train";
  options.size = 2;
  options.local_size = 2;
  options.node_name = "node-a";
  options.communicator = CommunicatorId(7);
  options.generation = generation;
  return options;
}

TEST_CASE("Job: a line of the log about it names job, communicator and, once known, generation") {
  const Job here(OptionsOf(3), nullptr, Clock::now());
  CHECK(here.Fields().job == "train");
  CHECK(here.Fields().communicator == 7u);
  CHECK(here.Fields().generation == 3u);
  CHECK_FALSE(here.Fields().rank.has_value());

  const Job elsewhere(OptionsOf({}), nullptr, Clock::now());
  CHECK(elsewhere.Fields().communicator == 7u);
  CHECK_FALSE(elsewhere.Fields().generation.has_value());
}

TEST_CASE("Job: a line about one of its ranks names the rank as well") {
  const Job job(OptionsOf(0), nullptr, Clock::now());
  CHECK(job.Fields(Rank(1)).rank == 1);
  CHECK(job.Fields(Rank(1)).job == "train");
  CHECK(job.Fields(Rank(1)).communicator == 7u);
  CHECK(job.Fields(Rank(1)).generation == 0u);
}

}  // namespace
}  // namespace ringd
