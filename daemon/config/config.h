// All that can be set about a ringd, with its defaults.
#ifndef RINGD_DAEMON_CONFIG_CONFIG_H_
#define RINGD_DAEMON_CONFIG_CONFIG_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ringd {

// Of a size: what is measured decides.
inline constexpr std::uint64_t kAutoBytes = UINT64_MAX;
// Of a number: the machine decides.
inline constexpr std::uint64_t kAutoCount = UINT64_MAX;

inline constexpr const char* kDefaultTransports = "tcp,self";

// Plain values; made by LoadConfig and constant afterwards. Every field is a row of the table in
// setting_table.cc, which names its key, what is allowed and the words of --help; the comments here
// are for readers of code.
//
// Thread safety: read by all threads once loaded.
struct Config {
  // ---- who may reach this ringd, and where ----
  std::string socket = "/run/ringd/ringd.sock";
  // Every user may connect by default: it is the kernel's word on who connects that admits or
  // refuses.
  std::uint64_t socket_mode = 0666;
  // Besides ringd's own user and root. "*" admits everybody.
  std::vector<std::string> allowed_users;
  std::vector<std::string> allowed_groups;
  // Its members see all users' jobs. Empty: only root and ringd's own user do.
  std::string operators_group;
  std::uint64_t max_sessions = 256;
  std::uint64_t max_sessions_per_user = kAutoCount;  // see SessionPlaces
  std::chrono::nanoseconds handshake_timeout = std::chrono::seconds(2);

  // ---- this node among others ----
  // Empty in the file means the host's name; ResolveNetwork fills it.
  std::string node_name;
  // host:port on which other ringds are served. Port 0: any, reported in ready_file and the log. An
  // empty host (":7117") is allowed beside peer_interface.
  std::string peer_address = "127.0.0.1:7117";
  // Serve other ringds on this interface's addresses instead of peer_address' host.
  std::string peer_interface;
  // What other ringds are told to connect to. Empty: peer_address' host, or the node's name if that
  // is a wildcard.
  std::string advertised_host;
  // No setting: what advertised_host stood for when ResolveNetwork needed it; numeric.
  std::vector<std::string> advertised_addresses;
  // A file with the key that all ringds of a cluster share (daemon/door/cluster_key.h). Empty:
  // there is none.
  std::string cluster_key_file;
  // Jobs over several nodes may do without cluster key and job secret.
  bool insecure_peers = false;

  // ---- memory of a session ----
  // Address space of each trainer's arena; memory is used where tensors are put.
  std::uint64_t arena_bytes = std::uint64_t{8} << 30;
  std::uint64_t submission_ring_capacity = 4096;  // records; a power of two
  // Of ringd's memory: what the names and shapes of one user's tensors may take, in all their
  // sessions and jobs.
  std::uint64_t registration_bytes_per_user = std::uint64_t{256} << 20;

  // ---- jobs ----
  std::chrono::nanoseconds start_timeout = std::chrono::seconds(120);
  std::chrono::nanoseconds stall_warning = std::chrono::seconds(5);
  std::chrono::nanoseconds operation_timeout = std::chrono::nanoseconds(0);  // 0: none
  // The greatest share of the lines, relative to other jobs, that a job may ask for.
  std::uint64_t max_weight = 100;
  std::chrono::nanoseconds drain_timeout = std::chrono::seconds(60);  // 0: no limit
  std::uint64_t remembered_jobs = 50;  // of each user, after their end

  // ---- schedule and transport ----
  // Names of nodes: those of a job that are named come in this order in its ring, the others behind
  // them.
  std::vector<std::string> ring_order;
  // Before a job begins its nodes measure: the links between them, which its ring follows, and
  // small all-reduces.
  bool measure_links = true;
  std::string fusion = "learned";  // see fusion_setting.h
  std::uint64_t fusion_threshold = std::uint64_t{64} << 20;
  bool learn_schedule = true;
  // How long the engine looks for work before it sleeps.
  std::chrono::nanoseconds spin = std::chrono::microseconds(50);
  // Threads that sum the ranks of this node, for jobs over several nodes, beside the engine.
  std::uint64_t reducer_threads = kAutoCount;
  // "tcp", "ucx", or "none": only jobs with all their ranks on this node. "auto" until
  // ResolveNetwork has chosen: "ucx" if `transports` asks for more than TCP or data_interfaces has
  // an RDMA device.
  std::string backend = "auto";
  // In UCX's words (UCX_TLS), for "ucx".
  std::string transports = kDefaultTransports;
  // Empty: lo if peer_address is a loopback address, else the interface that has the address;
  // ResolveNetwork fills it, and leaves it empty (all interfaces) for a wildcard address.
  std::vector<std::string> data_interfaces;
  // For carrier and address of the interfaces above, when ringd starts.
  std::chrono::nanoseconds link_timeout = std::chrono::seconds(30);
  std::uint64_t streams_per_neighbour = kAutoCount;
  std::string congestion_control = "auto";  // of TCP between nodes; see TransportOptions
  std::uint64_t chunk_bytes = std::uint64_t{128} << 10;
  // All-reduces over a few nodes go through one of them up to this size times the others' number.
  std::uint64_t flat_all_reduce_bytes = kAutoBytes;
  // Up to these sizes a latency-optimal algorithm is used instead of the ring; at most chunk_bytes.
  std::uint64_t small_all_reduce_bytes = kAutoBytes;
  std::uint64_t small_broadcast_bytes = std::uint64_t{32} << 10;

  // Ranks of a job over several nodes carry small operations out between themselves
  // (daemon/lanes/rank_exchange).
  bool rank_exchange = true;

  // ---- GPUs ----
  // As for dlopen: a library's name or its path. Empty: none.
  std::string cuda_library = "libcuda.so.1";
  std::string nccl_library = "libnccl.so.2";
  // Of device memory, what one rank may have for its tensors. 0: what its GPU has.
  std::uint64_t max_slab = 0;
  // Of NCCL communicators of a job that has failed, for the next one of its name. 0: none.
  std::chrono::nanoseconds keep_communicators = std::chrono::seconds(30);
  // Whose process launches on GPUs: "auto", "engine", "trainer" or "host" (LaunchChoice).
  std::string device_launch = "auto";

  // ---- engines ----
  // Empty: ringd-engine beside ringd's own file.
  std::string engine_program;
  std::chrono::nanoseconds engine_patience = std::chrono::seconds(30);

  // ---- what ringd writes ----
  std::string log_level = "info";
  std::string log_format = "text";
  std::string log_file;  // empty: standard error
  std::string state_dir = "/var/lib/ringd";
  // Written atomically when ringd serves: {"pid":..,"socket":"..","peer_address":"host:port"}.
  std::string ready_file;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_CONFIG_H_
