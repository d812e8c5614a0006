#include "client/core/options.h"

#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/core/attach/hydra_job.h"
#include "client/core/attach/no_ringd_advice.h"
#include "client/core/caller_structure.h"
#include "proto/types/job_weight.h"

namespace ringd::client {
namespace {

constexpr char kDefaultPeerPort[] = "7117";
constexpr char kDefaultCudaLibrary[] = "libcuda.so.1";

std::string Environment(const GetEnvironment& get, const char* name) {
  const char* value = get(name);
  return value == nullptr ? "" : value;
}

// The caller's text if there is one, else the variable's.
std::string Text(const char* given, const GetEnvironment& get, const char* name) {
  return given != nullptr && given[0] != '\0' ? given : Environment(get, name);
}

// Empty is an answer, too.
std::string Secret(const char* given, const GetEnvironment& get) {
  return given != nullptr ? given : Environment(get, "RINGD_JOB_SECRET");
}

absl::Status WrongVariable(const char* name, absl::string_view value, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(name, "='", value, "': it must be ", allowed));
}

struct Unit {
  absl::string_view name;
  double factor;
};

// ringd.toml's units, so that one variable can serve ringd and its trainers; none: seconds.
constexpr Unit kTimeUnits[] = {{"ms", 1e-3}, {"min", 60}, {"h", 3600}, {"s", 1}, {"", 1}};

// Seconds; nothing if it is none, negative, or not finite.
std::optional<double> Seconds(absl::string_view text) {
  for (const Unit& unit : kTimeUnits) {
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit.name)) continue;
    double value = 0;
    if (!absl::SimpleAtod(number, &value) || !(value >= 0) || std::isinf(value)) return {};
    return value * unit.factor;
  }
  return {};
}

// Milliseconds from a variable; 0 if it is not set.
absl::StatusOr<std::uint32_t> Milliseconds(const GetEnvironment& get, const char* name) {
  const std::string text = Environment(get, name);
  if (text.empty()) return 0;
  const std::optional<double> seconds = Seconds(text);
  constexpr double kMost = std::numeric_limits<std::uint32_t>::max() / 1000.0;
  if (!seconds.has_value() || *seconds > kMost) {
    return WrongVariable(name, text, "a time such as 30, 1.5s, 500ms or 10min");
  }
  // What is not 0 must not become 0, which means "the default".
  return static_cast<std::uint32_t>(std::ceil(*seconds * 1000));
}

absl::StatusOr<std::uint32_t> ResolveWeight(const ringd_options& given, const GetEnvironment& get) {
  const std::string allowed =
      absl::StrCat("a whole number, ", kMinJobWeight, " to ", kMaxJobWeight);
  if (given.weight > kMaxJobWeight) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weight that is given is ", given.weight, ": it must be ", allowed));
  }
  const std::string text = Environment(get, "RINGD_WEIGHT");
  if (given.weight > 0 || text.empty()) return given.weight;
  std::uint32_t weight = 0;
  if (!absl::SimpleAtoi(text, &weight) || weight < kMinJobWeight || weight > kMaxJobWeight) {
    return WrongVariable("RINGD_WEIGHT", text, allowed);
  }
  return weight;
}

absl::StatusOr<Places> ResolvePlaces(const ringd_options& given, const GetEnvironment& get) {
  if (given.rank < 0 || given.size == 0) return PlacesFromLauncher(get);
  const Places places{given.rank, given.size, given.local_rank, given.local_size};
  absl::Status status = CheckPlaces(places, "the caller");
  if (!status.ok()) return status;
  return places;
}

absl::StatusOr<std::string> ResolveRendezvous(const ringd_options& given, const Places& places,
                                              const GetEnvironment& get) {
  std::string rendezvous = Text(given.rendezvous, get, "RINGD_RENDEZVOUS");
  // A job whose ranks are all on this node needs nobody else.
  if (!rendezvous.empty() || places.local_size == places.size) return rendezvous;
  const std::string host = CoordinatorHostFromLauncher(get);
  if (host.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the job has ranks on other nodes (size ", places.size, ", local size ", places.local_size,
        "), but nothing says where rank 0 is: set MASTER_ADDR to the host of "
        "rank 0, or RINGD_RENDEZVOUS to host:port of its ringd"));
  }
  const std::string port = Environment(get, "RINGD_PEER_PORT");
  const bool bare_ipv6 = absl::StrContains(host, ':') && !absl::StartsWith(host, "[");
  return absl::StrCat(bare_ipv6 ? "[" : "", host, bare_ipv6 ? "]" : "", ":",
                      port.empty() ? kDefaultPeerPort : port);
}

void WarnOnStandardError(const std::string& text) {
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&lines, "ringd: ", line, "\n");
  }
  // One write, so that the lines of several ranks don't mix.
  std::fwrite(lines.data(), 1, lines.size(), stderr);
}

}  // namespace

absl::StatusOr<Options> ResolveOptions(const ringd_options* given_or_null,
                                       const GetEnvironment& get) {
  ringd_options given{};
  given.rank = -1;
  if (given_or_null != nullptr) {
    const std::size_t given_bytes = given_or_null->struct_size;
    absl::Status status = CheckStructureBytes<ringd_options>(given_bytes);
    if (!status.ok()) return status;
    given = FromCaller<ringd_options>(given_or_null, given_bytes);
  }

  Options options;
  options.socket = Text(given.socket, get, "RINGD_SOCKET");
  const bool socket_named = !options.socket.empty();
  if (!socket_named) options.socket = kDefaultSocket;

  const absl::StatusOr<Places> places = ResolvePlaces(given, get);
  if (!places.ok()) return places.status();
  options.join.places = *places;
  options.may_be_alone = !socket_named && places->size == 1 && LauncherName(get).empty();
  options.no_ringd_advice = NoRingdAdvice(options.socket, *places, get, ::geteuid());

  options.join.job_id = Text(given.job_id, get, "RINGD_JOB_ID");
  if (options.join.job_id.empty()) {
    const LauncherJob job = JobFromLauncher(get, [] { return HydraJob(::getpid(), "/proc"); });
    options.join.job_id = job.id;
    if (!job.is_distinct && places->size > 1) {
      options.start_warning =
          absl::StrCat("nothing tells job '", job.id, "', of ", places->size,
                       " ranks, from another one that is ",
                       "started the same way on this node: their ranks could meet in one job. Set ",
                       "RINGD_JOB_ID, the same on all ranks of a job and different for each job");
    }
  }

  absl::StatusOr<std::string> rendezvous = ResolveRendezvous(given, *places, get);
  if (!rendezvous.ok()) return rendezvous.status();
  options.join.rendezvous = *std::move(rendezvous);
  options.join.secret = Secret(given.secret, get);

  absl::StatusOr<std::uint32_t> start_timeout = given.start_timeout_ms;
  if (*start_timeout == 0) start_timeout = Milliseconds(get, "RINGD_START_TIMEOUT");
  if (!start_timeout.ok()) return start_timeout.status();
  options.join.start_timeout_ms = *start_timeout;

  absl::StatusOr<std::uint32_t> operation_timeout = given.operation_timeout_ms;
  if (*operation_timeout == 0) operation_timeout = Milliseconds(get, "RINGD_OPERATION_TIMEOUT");
  if (!operation_timeout.ok()) return operation_timeout.status();
  options.join.operation_timeout_ms = *operation_timeout;

  options.join.fusion = Text(given.fusion, get, "RINGD_FUSION");

  const absl::StatusOr<std::uint32_t> weight = ResolveWeight(given, get);
  if (!weight.ok()) return weight.status();
  options.join.weight = *weight;

  if (const std::string text = Environment(get, "RINGD_SPIN_US"); !text.empty()) {
    double microseconds = 0;
    if (!absl::SimpleAtod(text, &microseconds) || !(microseconds >= 0 && microseconds <= 1e9)) {
      return WrongVariable("RINGD_SPIN_US", text, "a number of microseconds, 0 to 1e9");
    }
    options.spin = std::chrono::nanoseconds(static_cast<std::int64_t>(microseconds * 1000));
  }

  if (const std::string text = Environment(get, "RINGD_BACKGROUND"); !text.empty()) {
    if (text != "0" && text != "1" && text != "auto") {
      return WrongVariable("RINGD_BACKGROUND", text, "0, 1 or auto");
    }
    options.background = text == "0"   ? BackgroundUse::kNever
                         : text == "1" ? BackgroundUse::kAlways
                                       : BackgroundUse::kWhereIdle;
  }

  if (const std::string text = Environment(get, "RINGD_DIRECT_READ"); !text.empty()) {
    if (text != "0" && text != "1" && text != "allow") {
      return WrongVariable("RINGD_DIRECT_READ", text, "0, 1 or allow");
    }
    options.direct_reading = text == "0"   ? DirectReading::kOff
                             : text == "1" ? DirectReading::kIfAllowed
                                           : DirectReading::kAllowToAll;
  }

  options.cuda_library = Environment(get, "RINGD_CUDA_LIBRARY");
  if (options.cuda_library.empty()) options.cuda_library = kDefaultCudaLibrary;
  options.nccl_library = Environment(get, "RINGD_NCCL_LIBRARY");
  if (const std::string text = Environment(get, "RINGD_HOST_PATH"); !text.empty()) {
    if (text != "0" && text != "1") return WrongVariable("RINGD_HOST_PATH", text, "0 or 1");
    options.wants_host_path = text == "1";
  }

  if (given.on_warning != nullptr) {
    options.on_warning = [callback = given.on_warning, user_data = given.user_data](
                             const std::string& text) { callback(user_data, text.c_str()); };
  } else {
    options.on_warning = WarnOnStandardError;
  }
  if (given.is_interrupted != nullptr) {
    options.is_interrupted = [callback = given.is_interrupted, user_data = given.user_data] {
      return callback(user_data) != 0;
    };
  }
  return options;
}

}  // namespace ringd::client
