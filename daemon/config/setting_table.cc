#include "daemon/config/setting_table.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ringd {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::uint64_t kKiB = std::uint64_t{1} << 10;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;

constexpr std::uint64_t Nanos(nanoseconds duration) {
  return static_cast<std::uint64_t>(duration.count());
}

// What goes into JobCoordinator::Options (engine_jobs.cc), and comes to the nodes with their
// membership.
constexpr absl::string_view kJobWide[] = {"ring_order",
                                          "measure_links",
                                          "fusion",
                                          "fusion_threshold",
                                          "learn_schedule",
                                          "chunk_bytes",
                                          "flat_all_reduce_bytes",
                                          "small_all_reduce_bytes",
                                          "small_broadcast_bytes"};

// What Daemon::Reload hands on.
constexpr absl::string_view kReloaded[] = {
    "allowed_users", "allowed_groups",        "operators_group",
    "max_sessions",  "max_sessions_per_user", "registration_bytes_per_user",
    "start_timeout", "stall_warning",         "operation_timeout",
    "max_weight",    "drain_timeout",         "remembered_jobs",
    "log_level"};

bool IsIn(std::span<const absl::string_view> keys, absl::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::vector<Setting> MakeTable() {
  using Kind = SettingKind;
  using C = Config;
  return {
      {"socket", Kind::kPath, &C::socket, "Unix socket on which trainers and ringctl are served"},
      {"socket_mode", Kind::kMode, &C::socket_mode, "permission bits of the socket", 0, 0777},
      {"allowed_users", Kind::kList, &C::allowed_users,
       "users admitted besides ringd's own and root, by name or number; \"*\" admits everybody"},
      {"allowed_groups", Kind::kList, &C::allowed_groups,
       "groups whose members are admitted, by name or number"},
      {"operators_group", Kind::kText, &C::operators_group,
       "group, by name or number, whose members ringctl shows all users' jobs, as it does to root "
       "and ringd's own user; others see their own"},
      {"max_sessions", Kind::kCount, &C::max_sessions, "trainers attached at once", 1, 65536},
      {"max_sessions_per_user", Kind::kCountOrAuto, &C::max_sessions_per_user,
       "trainers attached at once of one user; auto: a quarter of max_sessions, and more of root "
       "and ringd's own user",
       1, 65536},
      {"handshake_timeout", Kind::kDuration, &C::handshake_timeout,
       "how long a new connection may take to say what it wants", Nanos(milliseconds(10)),
       Nanos(hours(1))},

      {"node_name", Kind::kText, &C::node_name,
       "this node's name in messages and to other nodes; empty: the host's name"},
      {"peer_address", Kind::kAddress, &C::peer_address,
       "host:port on which other ringds are served; port 0: any"},
      {"peer_interface", Kind::kText, &C::peer_interface,
       "serve other ringds on this network interface's addresses, with peer_address' port"},
      {"advertised_host", Kind::kText, &C::advertised_host,
       "which of this node's addresses other ringds are told, where an interface has several or "
       "peer_address is a wildcard; empty: peer_address' host"},
      {"cluster_key_file", Kind::kPath, &C::cluster_key_file,
       "file with a key that all ringds of the cluster share, 32 bytes or more, which only ringd's "
       "user may read; empty: none"},
      {"insecure_peers", Kind::kSwitch, &C::insecure_peers,
       "let jobs over several nodes do without cluster key and job secret: whoever reaches "
       "peer_address can take part in them"},

      {"arena_bytes", Kind::kBytes, &C::arena_bytes,
       "address space of each trainer's tensor arena; memory is used where tensors are put", kMiB,
       64 * kTiB},
      {"submission_ring_capacity", Kind::kPowerOfTwo, &C::submission_ring_capacity,
       "tensors that one trainer may have in flight", 16, 1 << 20},
      {"registration_bytes_per_user", Kind::kBytes, &C::registration_bytes_per_user,
       "what the names and shapes of one user's tensors may take of ringd's memory", 64 * kKiB,
       kTiB},

      {"start_timeout", Kind::kDuration, &C::start_timeout,
       "how long a job waits for all its ranks to join", Nanos(milliseconds(100)),
       Nanos(hours(24 * 7))},
      {"stall_warning", Kind::kDuration, &C::stall_warning,
       "after this long, waiting ranks are told whom they wait for", Nanos(milliseconds(10)),
       Nanos(hours(24))},
      {"operation_timeout", Kind::kDuration, &C::operation_timeout,
       "an operation that waits longer for some rank fails its job; 0: none", 0,
       Nanos(hours(24 * 7))},
      {"max_weight", Kind::kCount, &C::max_weight,
       "the greatest weight that a job may ask for: jobs share lines in proportion to weights", 1,
       100},
      {"drain_timeout", Kind::kDuration, &C::drain_timeout,
       "how long SIGTERM lets running jobs go on; 0: until they end", 0, Nanos(hours(24 * 7))},
      {"remembered_jobs", Kind::kCount, &C::remembered_jobs,
       "how many ended jobs of each user `ringctl jobs --all` shows; of all users together, 16 "
       "times as many",
       0, 1000},

      {"ring_order", Kind::kOrder, &C::ring_order,
       "names of nodes in the order in which a job's ring is to pass through them; others come "
       "behind"},
      {"measure_links", Kind::kSwitch, &C::measure_links,
       "before a job begins (once a day for its nodes; a fraction of a second), measure the links "
       "between 4 to 32 nodes, and let the ring follow them where ring_order says nothing; try "
       "small all-reduces of 3 to 16 nodes, for flat_all_reduce_bytes"},
      {"fusion", Kind::kFusion, &C::fusion,
       "which tensors travel together: learned (planned from measurements), pinned (planned once), "
       "a size "
       "(buckets filled up to it), or off (each alone)"},
      {"fusion_threshold", Kind::kBytes, &C::fusion_threshold,
       "the most that a learned bucket holds, and tensors that are not learned yet are fused up to",
       0, 64 * kGiB},
      {"learn_schedule", Kind::kSwitch, &C::learn_schedule,
       "learn a job's order of tensors, and then start buckets without negotiation"},
      {"spin", Kind::kDuration, &C::spin, "how long the engine looks for work before it sleeps", 0,
       Nanos(std::chrono::seconds(1))},
      {"reducer_threads", Kind::kCountOrAuto, &C::reducer_threads,
       "threads that sum the tensors of this node's ranks, and copy large results to them, for the "
       "engine, in jobs over several nodes; "
       "auto: one for each 8 processors, at most 4",
       0, 64},
      {"backend",
       Kind::kChoice,
       &C::backend,
       "what moves bytes between nodes: ringd's own wire over TCP, or UCX; auto: tcp unless "
       "`transports` asks for more or `data_interfaces` has an RDMA device; with none, jobs must "
       "have all their ranks on this node",
       0,
       0,
       {"auto", "tcp", "ucx", "none"}},
      {"transports", Kind::kText, &C::transports,
       "UCX transports between nodes, in UCX's words (UCX_TLS), such as \"tcp,self\" or \"all\""},
      {"link_timeout", Kind::kDuration, &C::link_timeout,
       "how long a start waits until peer_interface and data_interfaces exist and have a carrier "
       "and an address; 0: not at all",
       0, Nanos(hours(1))},
      {"data_interfaces", Kind::kOrder, &C::data_interfaces,
       "network interfaces for data between nodes, which they share, each in a network of its own; "
       "an RDMA device is used through UCX; empty: the one of peer_address"},
      {"streams_per_neighbour", Kind::kCountOrAuto, &C::streams_per_neighbour,
       "connections for bulk to each neighbour; auto: one for each of data_interfaces, with UCX "
       "one",
       1, 16},
      {"congestion_control", Kind::kText, &C::congestion_control,
       "TCP's congestion control between nodes, but of UCX's connections: system; auto: the "
       "system's, but cubic or reno in place of bbr, whose pauses add up around a ring; or a name"},
      {"chunk_bytes", Kind::kBytes, &C::chunk_bytes,
       "piece of a bucket moved between nodes in one step", kKiB, 128 * kKiB},
      {"flat_all_reduce_bytes", Kind::kBytesOrAuto, &C::flat_all_reduce_bytes,
       "all-reduces over 3 to 16 nodes go through one node if it receives at most this; auto: what "
       "is faster where the job's nodes have tried both ways (measure_links), 32KiB else",
       0, 256 * kKiB},
      {"small_all_reduce_bytes", Kind::kBytesOrAuto, &C::small_all_reduce_bytes,
       "other all-reduces up to this size take recursive doubling, larger ones the ring; auto: "
       "between two nodes chunk_bytes; else what is faster on the link that an earlier job has "
       "measured, 32KiB before that",
       0, 128 * kKiB},
      {"small_broadcast_bytes", Kind::kBytes, &C::small_broadcast_bytes,
       "broadcasts up to this size take the algorithm with the fewest steps", 0, 128 * kKiB},
      {"rank_exchange", Kind::kSwitch, &C::rank_exchange,
       "let the ranks of a job over up to 16 nodes of up to 64 ranks carry out small all-reduces "
       "that they wait for themselves, over connections that ringd opens"},

      {"cuda_library", Kind::kLibrary, &C::cuda_library,
       "the CUDA driver, by the name under which the loader finds it or by its path; opened when "
       "somebody asks for GPUs, and for jobs that use them; empty: there are none"},
      {"nccl_library", Kind::kLibrary, &C::nccl_library, "NCCL, likewise; empty: there is none"},
      {"max_slab", Kind::kBytes, &C::max_slab,
       "device memory that one rank may have of ringd for its tensors; 0: all that its GPU has", 0,
       64 * kTiB},
      {"keep_communicators", Kind::kDuration, &C::keep_communicators,
       "how long an engine keeps the NCCL communicators of a job that has failed, for the next one "
       "of its name, which begins without making them anew; after one that all ranks have left, 3 "
       "s of it; 0: not at all",
       0, Nanos(std::chrono::hours(1))},
      {"device_launch",
       Kind::kChoice,
       &C::device_launch,
       "whose process launches on GPUs: engine, trainer, or auto: the engine if it and the trainer "
       "use the GPU at the same time, by one MPS, else the trainer; host: tensors on GPUs are "
       "copied to host memory and reduced there, as they are with auto where NCCL is missing",
       0,
       0,
       {"auto", "engine", "trainer", "host"}},

      {"engine_program", Kind::kPath, &C::engine_program,
       "the program that serves a job, of ringd's own version; empty: ringd-engine in ringd's "
       "folder"},
      {"engine_patience", Kind::kDuration, &C::engine_patience,
       "an engine that gives no sign of life for this long is ended, and its job fails; likewise "
       "one whose GPU's driver does not come back",
       Nanos(std::chrono::seconds(5)), Nanos(hours(1))},

      {"log_level",
       Kind::kChoice,
       &C::log_level,
       "the least severe lines that are logged",
       0,
       0,
       {"trace", "debug", "info", "warning", "error", "off"}},
      {"log_format", Kind::kChoice, &C::log_format, "form of log lines", 0, 0, {"text", "json"}},
      {"log_file", Kind::kPath, &C::log_file,
       "file to which log lines are appended; empty: standard error"},
      {"state_dir", Kind::kPath, &C::state_dir, "folder for what ringd has learned"},
      {"ready_file", Kind::kPath, &C::ready_file,
       "written when ringd serves, a JSON object with pid, socket and peer_address; empty: none"},
  };
}

std::size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Setting> AllSettings() {
  static const std::vector<Setting>& table = *new std::vector<Setting>([] {
    std::vector<Setting> settings = MakeTable();
    for (Setting& setting : settings) {
      setting.job_wide = IsIn(kJobWide, setting.key);
      setting.reloaded = IsIn(kReloaded, setting.key);
    }
    return settings;
  }());
  return table;
}

const Setting* FindSetting(absl::string_view key) {
  for (const Setting& setting : AllSettings()) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

const Setting* SuggestSetting(absl::string_view key) {
  const std::string wanted = absl::StrReplaceAll(absl::AsciiStrToLower(key), {{"-", "_"}});
  const Setting* nearest = nullptr;
  std::size_t nearest_distance = std::max<std::size_t>(2, wanted.size() / 3) + 1;
  for (const Setting& setting : AllSettings()) {
    const std::size_t distance = EditDistance(wanted, setting.key);
    if (distance < nearest_distance) {
      nearest = &setting;
      nearest_distance = distance;
    }
  }
  return nearest;
}

std::string VariableOf(const Setting& setting) {
  return absl::StrCat("RINGD_", absl::AsciiStrToUpper(setting.key));
}

std::string FlagOf(const Setting& setting) {
  return absl::StrCat("--", absl::StrReplaceAll(setting.key, {{"_", "-"}}));
}

}  // namespace ringd
