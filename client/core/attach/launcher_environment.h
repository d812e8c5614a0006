// What a launcher (torchrun, mpirun, srun, ...) tells a process through its environment.
//
// Each launcher's variables are looked at as one set: a set that is begun must be whole, so that a
// forgotten variable is an error that names it and not a job of the wrong shape. The order is that
// of nesting: mpirun inside a Slurm allocation starts its own daemons with srun, so its ranks see
// both sets, and Slurm's describes the daemons.
#ifndef RINGD_CLIENT_CORE_ATTACH_LAUNCHER_ENVIRONMENT_H_
#define RINGD_CLIENT_CORE_ATTACH_LAUNCHER_ENVIRONMENT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringd::client {

// Like std::getenv; injected, so that tests need not change the process.
using GetEnvironment = std::function<const char*(const char* name)>;

// A process's place in its job. The defaults are those of one rank alone.
struct Places {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::int32_t local_rank = 0;
  std::int32_t local_size = 1;

  friend bool operator==(const Places&, const Places&) = default;
};

// kInvalidArgument unless 0 <= local_rank < local_size <= size and 0 <= rank < size. `origin` says
// in the message whose numbers they are.
absl::Status CheckPlaces(const Places& places, absl::string_view origin);

// The places that the launcher gave: torchrun, Open MPI, MPICH's and Intel's hydra, Slurm, another
// PMI; one rank alone if there is no launcher.
//   kInvalidArgument: a variable is missing or wrong; the message names launcher and variable.
absl::StatusOr<Places> PlacesFromLauncher(const GetEnvironment& get);

// "torchrun", "Open MPI" and so on; empty if there is no launcher. ringctl run looks like torchrun.
absl::string_view LauncherName(const GetEnvironment& get);

struct LauncherJob {
  // Printable, equal on all ranks; "default" where there is nothing to make one from.
  std::string id;
  // False: another job that is started the same way meanwhile would have this id, too.
  bool is_distinct = false;
};

// A name for this run: the launcher's own, or one made of where its ranks meet. MPICH's hydra names
// nothing in its variables: for it `hydra_job` is asked, HydraJob of this process.
LauncherJob JobFromLauncher(const GetEnvironment& get,
                            const std::function<std::string()>& hydra_job);

// The host of rank 0, as far as the launcher tells: MASTER_ADDR, else the first host of Slurm's
// list. Empty: it does not.
std::string CoordinatorHostFromLauncher(const GetEnvironment& get);

// The entry for node `node_index` of a list such as Slurm's "2(x3),1"; kInvalidArgument if the text
// is no such list or too short.
absl::StatusOr<std::int32_t> TasksOfNode(absl::string_view tasks_per_node, std::int32_t node_index);

// The first host of a list such as Slurm's "gpu[03-07,12],login1": "gpu03".
std::string FirstHost(absl::string_view node_list);

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_LAUNCHER_ENVIRONMENT_H_
