#include "client/core/attach/launcher_environment.h"

#include <catch2/catch.hpp>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

namespace ringd::client {
namespace {

using Catch::Matchers::Contains;

// An environment made of the given variables and no other.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const std::string, std::string>> variables)
      : variables_(variables) {}
  explicit Environment(std::map<std::string, std::string> variables)
      : variables_(std::move(variables)) {}

  GetEnvironment get() const {
    return [this](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    };
  }

 private:
  const std::map<std::string, std::string> variables_;
};

void CheckPlacesAre(const Environment& environment, const Places& expected) {
  const absl::StatusOr<Places> places = PlacesFromLauncher(environment.get());
  INFO(places.status().ToString());
  REQUIRE(places.ok());
  CHECK(places->rank == expected.rank);
  CHECK(places->size == expected.size);
  CHECK(places->local_rank == expected.local_rank);
  CHECK(places->local_size == expected.local_size);
}

std::string PlacesError(const Environment& environment) {
  const absl::StatusOr<Places> places = PlacesFromLauncher(environment.get());
  REQUIRE(absl::IsInvalidArgument(places.status()));
  return std::string(places.status().message());
}

// Of a process that is not hydra's, unless `hydra_job` is given.
std::string JobOf(const Environment& environment, const std::string& hydra_job = "") {
  const LauncherJob job = JobFromLauncher(environment.get(), [&] { return hydra_job; });
  return job.is_distinct ? job.id : job.id + " (not distinct)";
}

TEST_CASE("Launcher: has a name that errors can use") {
  CHECK(LauncherName(Environment({}).get()).empty());
  CHECK(LauncherName(Environment({{"WORLD_SIZE", "2"}}).get()).empty());
  CHECK(LauncherName(Environment({{"LOCAL_RANK", "0"}}).get()) == "torchrun");
  CHECK(LauncherName(Environment({{"OMPI_COMM_WORLD_RANK", "0"}}).get()) == "Open MPI");
  CHECK(LauncherName(Environment({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}}).get()) ==
        "Slurm");
}

TEST_CASE("Launcher: without one a process is alone") {
  CheckPlacesAre(Environment({}), {0, 1, 0, 1});
  CHECK(JobOf(Environment({})) == "default (not distinct)");
  CHECK(CoordinatorHostFromLauncher(Environment({}).get()).empty());
}

TEST_CASE("Launcher: torchrun's variables") {
  const Environment torchrun({{"RANK", "5"},
                              {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"MASTER_ADDR", "node-a"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RUN_ID", "run-17"}});
  CheckPlacesAre(torchrun, {5, 8, 1, 4});
  CHECK(JobOf(torchrun) == "run-17");
  CHECK(CoordinatorHostFromLauncher(torchrun.get()) == "node-a");
}

TEST_CASE("Launcher: where the ranks meet tells two jobs apart that have no other name") {
  for (const char* port : {"29512", "29513"}) {
    // torchrun's default run id.
    CHECK(JobOf(Environment({{"RANK", "0"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", port}})) == std::string("torchrun-127.0.0.1-") + port);
    // Started by hand, in a Slurm step or not; or by a call that gives the places.
    CHECK(JobOf(Environment({{"RANK", "0"},
                             {"SLURM_JOB_ID", "1"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", "0"},
                             {"MASTER_ADDR", "a"},
                             {"MASTER_PORT", port}})) == std::string("torchrun-a-") + port);
    CHECK(JobOf(Environment({{"MASTER_ADDR", "a"}, {"MASTER_PORT", port}})) ==
          std::string("torchrun-a-") + port);
    CHECK(JobOf(Environment({{"PMI_RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", port}})) ==
          std::string("torchrun-a-") + port);
  }
  // Half of it may be there on some ranks only.
  CHECK(JobOf(Environment({{"RANK", "0"}, {"MASTER_PORT", "1"}})) == "default (not distinct)");
  // In a batch script two jobs may run at once, in a step one.
  CHECK(JobOf(Environment({{"RANK", "0"}, {"SLURM_JOB_ID", "7"}})) == "slurm-7 (not distinct)");
  CHECK(JobOf(Environment({{"RANK", "0"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEPID", "2"}})) ==
        "slurm-7.2");
}

TEST_CASE("Launcher: a job id is printable whatever a variable has in it") {
  CHECK(JobOf(Environment({{"RANK", "0"}, {"MASTER_ADDR", "a\n\x1b"}, {"MASTER_PORT", "1"}})) ==
        "torchrun-a\\n\\033-1");
}

TEST_CASE("Launcher: a variable that is missing is named") {
  CHECK_THAT(PlacesError(Environment({{"RANK", "0"}, {"WORLD_SIZE", "4"}})),
             Contains("torchrun") && Contains("LOCAL_RANK is not set") &&
                 Contains("in C in ringd_options, in Python as arguments"));
  CHECK_THAT(
      PlacesError(Environment(
          {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", ""}})),
      Contains("LOCAL_WORLD_SIZE is not set"));
  CHECK_THAT(PlacesError(Environment({{"OMPI_COMM_WORLD_RANK", "0"}})),
             Contains("Open MPI") && Contains("OMPI_COMM_WORLD_SIZE is not set"));
  CHECK_THAT(PlacesError(Environment({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})),
             Contains("PMI_LOCAL_RANK or MPI_LOCALRANKID is not set"));
}

TEST_CASE("Launcher: a value that makes no sense is named") {
  CHECK_THAT(
      PlacesError(Environment(
          {{"RANK", "zero"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "4"}})),
      Contains("RANK='zero' is no integer"));
  CHECK_THAT(
      PlacesError(Environment(
          {{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "4"}})),
      Contains("rank must be 0 .. size-1") && Contains("rank 4 of 4"));
  CHECK_THAT(
      PlacesError(Environment(
          {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}})),
      Contains("local rank 2 of 2"));
  CHECK_THAT(
      PlacesError(Environment(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "4"}})),
      Contains("local_size must be 1 .. size"));
}

TEST_CASE("Launcher: Open MPI's variables, and its namespace as job id") {
  const Environment open_mpi({{"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "prterun-host-12@1"}});
  CheckPlacesAre(open_mpi, {3, 4, 1, 2});
  CHECK(JobOf(open_mpi) == "mpi-prterun-host-12@1");
}

TEST_CASE("Launcher: mpirun inside a Slurm allocation is Open MPI's, not Slurm's") {
  CheckPlacesAre(Environment({{"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"SLURM_STEP_ID", "0"},
                              {"SLURM_PROCID", "1"},
                              {"SLURM_NTASKS", "2"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_NTASKS_PER_NODE", "1"}}),
                 {3, 4, 1, 2});
}

TEST_CASE("Launcher: MPICH's hydra and other PMIs") {
  CheckPlacesAre(Environment({{"PMI_RANK", "2"},
                              {"PMI_SIZE", "3"},
                              {"MPI_LOCALRANKID", "0"},
                              {"MPI_LOCALNRANKS", "1"}}),
                 {2, 3, 0, 1});
  CheckPlacesAre(
      Environment(
          {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_LOCAL_RANK", "1"}, {"PMI_LOCAL_SIZE", "2"}}),
      {2, 3, 1, 2});
  CheckPlacesAre(Environment({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), {0, 1, 0, 1});
}

TEST_CASE("Launcher: each mpiexec of hydra's is a job of its own, also in one Slurm allocation") {
  using Variables = std::map<std::string, std::string>;
  const auto hydra = [](const Variables& more, const std::string& job = "") {
    Variables all = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}};
    all.insert(more.begin(), more.end());
    return JobOf(Environment(all), job);
  };
  CHECK(hydra({}, "node-a:4711") == "hydra-node-a:4711");
  CHECK(hydra({{"SLURM_JOB_ID", "7"}}, "node-a:4712") == "hydra-node-a:4712");
  CHECK(hydra({{"I_MPI_HYDRA_UUID", "dd0a-1"}, {"HYDRA_BSTRAP_PGID", "0"}}) == "hydra-dd0a-1");
  CHECK(hydra({{"I_MPI_HYDRA_UUID", "dd0a-1"}, {"HYDRA_BSTRAP_PGID", "3"}}) == "hydra-dd0a-1.3");
  CHECK(hydra({}) == "default (not distinct)");
  CHECK(JobOf(Environment({{"PMI_RANK", "0"}, {"PMI_JOBID", "x"}}), "no-hydra:1") == "pmi-x");
}

TEST_CASE("Launcher: a Slurm step takes its local size from the task list") {
  const Environment slurm({{"SLURM_STEP_ID", "2"},
                           {"SLURM_JOB_ID", "4711"},
                           {"SLURM_PROCID", "6"},
                           {"SLURM_NTASKS", "7"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_NODEID", "3"},
                           {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                           {"SLURM_STEP_NODELIST", "gpu[03-07,12],login1"}});
  CheckPlacesAre(slurm, {6, 7, 0, 1});
  CHECK(JobOf(slurm) == "slurm-4711.2");
  CHECK(CoordinatorHostFromLauncher(slurm.get()) == "gpu03");
}

TEST_CASE("Launcher: Slurm without a task list uses the tasks per node that were asked for") {
  CheckPlacesAre(Environment({{"SLURM_STEP_ID", "0"},
                              {"SLURM_PROCID", "2"},
                              {"SLURM_NTASKS", "4"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_NTASKS_PER_NODE", "2"}}),
                 {2, 4, 0, 2});
  CHECK_THAT(PlacesError(Environment({{"SLURM_STEP_ID", "0"},
                                      {"SLURM_PROCID", "2"},
                                      {"SLURM_NTASKS", "4"},
                                      {"SLURM_LOCALID", "0"}})),
             Contains("Slurm") && Contains("SLURM_NTASKS_PER_NODE"));
  CHECK_THAT(PlacesError(Environment({{"SLURM_STEP_ID", "0"},
                                      {"SLURM_PROCID", "2"},
                                      {"SLURM_NTASKS", "4"},
                                      {"SLURM_LOCALID", "0"},
                                      {"SLURM_NODEID", "9"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}})),
             Contains("SLURM_STEP_TASKS_PER_NODE='2(x2)'") && Contains("SLURM_NODEID=9"));
}

TEST_CASE("Launcher: a Slurm batch script is no step, and alone") {
  CheckPlacesAre(Environment({{"SLURM_JOB_ID", "4711"},
                              {"SLURM_PROCID", "0"},
                              {"SLURM_NTASKS", "4"},
                              {"SLURM_LOCALID", "0"}}),
                 {0, 1, 0, 1});
}

TEST_CASE("Launcher: a shell in a step of Slurm's is none: what is started there is alone") {
  using Variables = std::map<std::string, std::string>;
  const Variables step = {
      {"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"},
      {"SLURM_LOCALID", "0"},   {"SLURM_NODEID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "1"},
      {"PMI_RANK", "0"},        {"PMI_SIZE", "1"}};
  const auto with = [&](const Variables& more) {
    Variables all = step;
    all.insert(more.begin(), more.end());
    return Environment(all);
  };
  for (const Variables& shell : {Variables{{"SLURM_STEP_ID", "0"}, {"SLURM_PTY_PORT", "40001"}},
                                 Variables{{"SLURM_STEP_ID", "4294967290"}}}) {
    CHECK(LauncherName(with(shell).get()).empty());
    CheckPlacesAre(with(shell), {0, 1, 0, 1});
    CHECK(JobOf(with(shell)) == "slurm-4711 (not distinct)");
  }
  CHECK(LauncherName(with({{"SLURM_STEP_ID", "3"}}).get()) == "Slurm");
  // Of an srun that such a shell has started.
  CHECK(LauncherName(Environment({{"SLURM_STEP_ID", "1"},
                                  {"SLURM_PROCID", "1"},
                                  {"SLURM_STEP_NUM_TASKS", "2"},
                                  {"SLURM_PTY_PORT", "40001"}})
                         .get()) == "Slurm");
}

TEST_CASE("Launcher: ranks of mpirun in an allocation agree on the first node of all") {
  const std::map<std::string, std::string> rank = {{"OMPI_COMM_WORLD_RANK", "0"},
                                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                                   {"SLURM_JOB_NODELIST", "node[1-2]"}};
  CHECK(CoordinatorHostFromLauncher(Environment(rank).get()) == "node1");
  // On the others Open MPI's daemon is a step, whose list has all nodes but mpirun's own.
  std::map<std::string, std::string> elsewhere = rank;
  elsewhere.insert({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "node2"}});
  CHECK(CoordinatorHostFromLauncher(Environment(elsewhere).get()) == "node1");
}

TEST_CASE("TasksOfNode: entries with and without repetition; nonsense is refused") {
  CHECK(*TasksOfNode("4", 0) == 4);
  CHECK(*TasksOfNode("2(x3),1", 0) == 2);
  CHECK(*TasksOfNode("2(x3),1", 2) == 2);
  CHECK(*TasksOfNode("2(x3),1", 3) == 1);
  for (const char* text : {"", "x", "2(x", "2(x3", "2(3)", "0", "-1", "2(x0)", "2,,1"}) {
    INFO(text);
    CHECK_FALSE(TasksOfNode(text, 3).ok());
  }
  CHECK_FALSE(TasksOfNode("2(x3),1", 4).ok());
  CHECK_FALSE(TasksOfNode("2", -1).ok());
}

TEST_CASE("FirstHost: plain names, ranges and suffixes") {
  CHECK(FirstHost("node1") == "node1");
  CHECK(FirstHost("node1,node2") == "node1");
  CHECK(FirstHost("gpu[03-07,12],login1") == "gpu03");
  CHECK(FirstHost("gpu[3,5]") == "gpu3");
  CHECK(FirstHost("rack[1-4]-node,other") == "rack1-node");
  CHECK(FirstHost("").empty());
}

}  // namespace
}  // namespace ringd::client
