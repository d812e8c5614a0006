#include "client/core/attach/launcher_environment.h"

#include <initializer_list>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ringd::client {
namespace {

// The value of `name`; empty counts as not set, because shells can't unset for a child.
absl::string_view Value(const GetEnvironment& get, const char* name) {
  const char* value = get(name);
  return value == nullptr ? absl::string_view() : absl::string_view(value);
}

bool IsSet(const GetEnvironment& get, const char* name) { return !Value(get, name).empty(); }

bool AnySet(const GetEnvironment& get, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (IsSet(get, name)) return true;
  }
  return false;
}

// Reads one launcher's variables and keeps the first thing that is wrong with them.
class Reader {
 public:
  Reader(const GetEnvironment& get, const char* launcher) : get_(get), launcher_(launcher) {}

  // The first of `names` that is set, as an integer.
  std::int32_t Integer(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const absl::string_view text = Value(get_, name);
      if (text.empty()) continue;
      std::int32_t value = 0;
      if (!absl::SimpleAtoi(text, &value)) {
        Fail(absl::StrCat(name, "='", text, "' is no integer"));
      }
      return value;
    }
    Fail(absl::StrCat(absl::StrJoin(names, " or "), " is not set"));
    return 0;
  }

  void Fail(absl::string_view problem) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "the environment looks like ", launcher_, "'s, but ", problem,
        " (or give rank, size, local_rank and local_size: in C in ringd_options, in Python as "
        "arguments)"));
  }

  absl::StatusOr<Places> Finish(const Places& places) const {
    if (!status_.ok()) return status_;
    absl::Status status = CheckPlaces(places, absl::StrCat(launcher_, "'s environment"));
    if (!status.ok()) return status;
    return places;
  }

 private:
  const GetEnvironment& get_;
  const char* launcher_;
  absl::Status status_;
};

// A launcher that says each part of the place in one variable.
struct PlaceVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr PlaceVariables kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE"};
constexpr PlaceVariables kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr PlaceVariables kHydra{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                "MPI_LOCALNRANKS"};

constexpr char kSlurm[] = "Slurm";

absl::StatusOr<Places> FromVariables(const GetEnvironment& get, const PlaceVariables& variables) {
  Reader reader(get, variables.launcher);
  Places places;
  places.rank = reader.Integer({variables.rank});
  places.size = reader.Integer({variables.size});
  places.local_rank = reader.Integer({variables.local_rank});
  places.local_size = reader.Integer({variables.local_size});
  return reader.Finish(places);
}

absl::StatusOr<Places> FromPmi(const GetEnvironment& get) {
  Reader reader(get, "PMI");
  Places places;
  places.rank = reader.Integer({"PMI_RANK"});
  places.size = reader.Integer({"PMI_SIZE"});
  if (places.size != 1 || AnySet(get, {"PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"})) {
    places.local_rank = reader.Integer({"PMI_LOCAL_RANK", "MPI_LOCALRANKID"});
    places.local_size = reader.Integer({"PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  }
  return reader.Finish(places);
}

absl::StatusOr<Places> FromSlurm(const GetEnvironment& get) {
  Reader reader(get, kSlurm);
  Places places;
  places.rank = reader.Integer({"SLURM_PROCID"});
  places.size = reader.Integer({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  places.local_rank = reader.Integer({"SLURM_LOCALID"});
  // The step's own list is exact, also where nodes have different numbers of tasks; the requested
  // number per node is the last resort.
  const char* list_name = IsSet(get, "SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE"
                                                                  : "SLURM_TASKS_PER_NODE";
  if (IsSet(get, list_name)) {
    const std::int32_t node = reader.Integer({"SLURM_NODEID"});
    const absl::string_view list = Value(get, list_name);
    const absl::StatusOr<std::int32_t> tasks = TasksOfNode(list, node);
    if (tasks.ok()) {
      places.local_size = *tasks;
    } else {
      reader.Fail(absl::StrCat(list_name, "='", list, "' has no entry for SLURM_NODEID=", node));
    }
  } else {
    places.local_size = reader.Integer({"SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"});
  }
  return reader.Finish(places);
}

absl::string_view SlurmStep(const GetEnvironment& get) {
  return IsSet(get, "SLURM_STEP_ID") ? Value(get, "SLURM_STEP_ID") : Value(get, "SLURM_STEPID");
}

// A shell in a step of its own (srun --pty, salloc with use_interactive_step): what is started
// there by hand sees a step of one task, and is alone.
bool IsInteractiveStep(const GetEnvironment& get) {
  constexpr absl::string_view kInteractive = "4294967290";  // SLURM_INTERACTIVE_STEP of slurm.h
  const absl::string_view step = SlurmStep(get);
  if (step.empty() || Value(get, "SLURM_STEP_NUM_TASKS") != "1") return false;
  return step == kInteractive || IsSet(get, "SLURM_PTY_PORT");
}

struct Launcher {
  const char* name;
  // Whether it has started this process.
  bool (*present)(const GetEnvironment& get);
  absl::StatusOr<Places> (*places)(const GetEnvironment& get);
};

// In the order of nesting: who started the process itself first.
constexpr Launcher kLaunchers[] = {
    // LOCAL_RANK and RANK are torchrun's own; WORLD_SIZE alone is left behind by other tools too.
    {kTorchrun.launcher,
     [](const GetEnvironment& get) {
       return AnySet(get, {"RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
     },
     [](const GetEnvironment& get) { return FromVariables(get, kTorchrun); }},
    {kOpenMpi.launcher,
     [](const GetEnvironment& get) {
       return AnySet(get, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
     },
     [](const GetEnvironment& get) { return FromVariables(get, kOpenMpi); }},
    {kHydra.launcher,
     [](const GetEnvironment& get) {
       return IsSet(get, "PMI_RANK") && AnySet(get, {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
     },
     [](const GetEnvironment& get) { return FromVariables(get, kHydra); }},
    // A batch script has SLURM_PROCID=0 too, but is no step: there a process is alone.
    {kSlurm,
     [](const GetEnvironment& get) {
       return !SlurmStep(get).empty() && IsSet(get, "SLURM_PROCID") && !IsInteractiveStep(get);
     },
     FromSlurm},
    {"PMI",
     [](const GetEnvironment& get) {
       return AnySet(get, {"PMI_RANK", "PMI_SIZE"}) && !IsInteractiveStep(get);
     },
     FromPmi},
};

// Null: none.
const Launcher* FindLauncher(const GetEnvironment& get) {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.present(get)) return &launcher;
  }
  return nullptr;
}

// Intel's hydra names its jobs, MPICH's does not. Empty: nothing does.
std::string HydraJob(const GetEnvironment& get, const std::function<std::string()>& hydra_job) {
  const absl::string_view uuid = Value(get, "I_MPI_HYDRA_UUID");
  if (uuid.empty()) return hydra_job();
  const absl::string_view group = Value(get, "HYDRA_BSTRAP_PGID");  // of what a job has spawned
  const bool spawned = !group.empty() && group != "0";
  return absl::CEscape(spawned ? absl::StrCat(uuid, ".", group) : uuid);
}

}  // namespace

absl::Status CheckPlaces(const Places& places, absl::string_view origin) {
  const auto wrong = [&](absl::string_view rule) {
    return absl::InvalidArgumentError(
        absl::StrCat(rule, ", but ", origin, " says rank ", places.rank, " of ", places.size,
                     ", local rank ", places.local_rank, " of ", places.local_size));
  };
  if (places.size < 1) return wrong("size must be at least 1");
  if (places.rank < 0 || places.rank >= places.size) return wrong("rank must be 0 .. size-1");
  if (places.local_size < 1 || places.local_size > places.size) {
    return wrong("local_size must be 1 .. size");
  }
  if (places.local_rank < 0 || places.local_rank >= places.local_size) {
    return wrong("local_rank must be 0 .. local_size-1");
  }
  return absl::OkStatus();
}

absl::StatusOr<Places> PlacesFromLauncher(const GetEnvironment& get) {
  const Launcher* launcher = FindLauncher(get);
  return launcher == nullptr ? Places() : launcher->places(get);
}

absl::string_view LauncherName(const GetEnvironment& get) {
  const Launcher* launcher = FindLauncher(get);
  return launcher == nullptr ? absl::string_view() : launcher->name;
}

LauncherJob JobFromLauncher(const GetEnvironment& get,
                            const std::function<std::string()>& hydra_job) {
  const absl::string_view run_id = Value(get, "TORCHELASTIC_RUN_ID");
  // "none" is torchrun's default for every job; its port is what tells two of them apart.
  if (!run_id.empty() && run_id != "none") return {std::string(run_id), true};
  const absl::string_view launcher = LauncherName(get);
  const bool has_master = IsSet(get, "MASTER_ADDR") && IsSet(get, "MASTER_PORT");
  const std::string master = absl::CEscape(
      absl::StrCat("torchrun-", Value(get, "MASTER_ADDR"), "-", Value(get, "MASTER_PORT")));
  if (has_master && (!run_id.empty() || launcher == kTorchrun.launcher)) return {master, true};
  if (launcher == kOpenMpi.launcher) {
    for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
      if (IsSet(get, name)) return {absl::CEscape(absl::StrCat("mpi-", Value(get, name))), true};
    }
  }
  // Before Slurm's: two of hydra's jobs may be in one allocation.
  if (launcher == kHydra.launcher) {
    const std::string job = HydraJob(get, hydra_job);
    if (!job.empty()) return {absl::StrCat("hydra-", job), true};
  }
  // Whoever gives the places himself may have set these all the same.
  const absl::string_view step = IsInteractiveStep(get) ? "" : SlurmStep(get);
  if (has_master && (launcher.empty() || step.empty())) return {master, true};
  if (IsSet(get, "SLURM_JOB_ID")) {
    return {absl::CEscape(
                absl::StrCat("slurm-", Value(get, "SLURM_JOB_ID"), step.empty() ? "" : ".", step)),
            !step.empty()};
  }
  if (IsSet(get, "PMI_JOBID")) {
    return {absl::CEscape(absl::StrCat("pmi-", Value(get, "PMI_JOBID"))), true};
  }
  return {"default", false};
}

std::string CoordinatorHostFromLauncher(const GetEnvironment& get) {
  if (IsSet(get, "MASTER_ADDR")) return std::string(Value(get, "MASTER_ADDR"));
  // The step's list is that of srun's own ranks. Ranks of another launcher may see the one of the
  // step that started its daemons: on some nodes only, and without the first node.
  const bool is_step = LauncherName(get) == kSlurm;
  if (is_step && IsSet(get, "SLURM_STEP_NODELIST")) {
    return FirstHost(Value(get, "SLURM_STEP_NODELIST"));
  }
  for (const char* name : {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (IsSet(get, name)) return FirstHost(Value(get, name));
  }
  return "";
}

absl::StatusOr<std::int32_t> TasksOfNode(absl::string_view tasks_per_node,
                                         std::int32_t node_index) {
  std::int64_t first_node_of_entry = 0;
  for (absl::string_view entry : absl::StrSplit(tasks_per_node, ',')) {
    // "N" stands for one node, "N(xM)" for M nodes in a row.
    std::int32_t tasks = 0;
    std::int32_t repeated = 1;
    const std::size_t bracket = entry.find("(x");
    const bool valid =
        absl::SimpleAtoi(entry.substr(0, bracket), &tasks) && tasks > 0 &&
        (bracket == absl::string_view::npos ||
         (absl::EndsWith(entry, ")") &&
          absl::SimpleAtoi(entry.substr(bracket + 2, entry.size() - bracket - 3), &repeated) &&
          repeated > 0));
    if (!valid) {
      return absl::InvalidArgumentError(absl::StrCat("'", tasks_per_node, "' is no task list"));
    }
    first_node_of_entry += repeated;
    if (node_index >= 0 && node_index < first_node_of_entry) return tasks;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", tasks_per_node, "' has no entry for node ", node_index));
}

std::string FirstHost(absl::string_view node_list) {
  const std::size_t end = node_list.find_first_of(",[");
  const absl::string_view prefix = node_list.substr(0, end);
  if (end == absl::string_view::npos || node_list[end] == ',') return std::string(prefix);
  const absl::string_view numbers = node_list.substr(end + 1);
  const std::size_t number_end = numbers.find_first_of(",-]");
  std::string host = absl::StrCat(prefix, numbers.substr(0, number_end));
  // A suffix may follow the bracket: "rack[1-4]-node,other".
  const std::size_t bracket_end = numbers.find(']');
  if (bracket_end != absl::string_view::npos) {
    const absl::string_view rest = numbers.substr(bracket_end + 1);
    absl::StrAppend(&host, rest.substr(0, rest.find_first_of(",[")));
  }
  return host;
}

}  // namespace ringd::client
