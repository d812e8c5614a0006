#include "client/core/attach/no_ringd_advice.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace ringd::client {
namespace {

// After `su` the variables may still be another user's.
bool IsFolderOfUser(const char* folder) {
  return folder != nullptr && folder[0] == '/' && ::access(folder, W_OK | X_OK) == 0;
}

// Where this user can have a socket of this host's: a home may be all hosts'.
std::string SocketOfUser(const GetEnvironment& get) {
  const char* const runtime = get("XDG_RUNTIME_DIR");
  if (IsFolderOfUser(runtime)) return absl::StrCat(runtime, "/ringd.sock");
  const char* const home = get("HOME");
  if (IsFolderOfUser(home)) return absl::StrCat(home, "/ringd-$(hostname).sock");
  return "FOLDER/ringd.sock";
}

// As Podman, systemd-nspawn and Apptainer say; Docker says nothing.
bool IsInContainer(const GetEnvironment& get) {
  return get("container") != nullptr || get("APPTAINER_CONTAINER") != nullptr ||
         get("SINGULARITY_CONTAINER") != nullptr;
}

std::string StartingOne(const std::string& socket, const GetEnvironment& get, uid_t uid) {
  if (socket != kDefaultSocket) {
    return absl::StrCat("start one there with `ringd --config /dev/null --socket ", socket,
                        "`, or set RINGD_SOCKET to another's socket (in a home that several hosts "
                        "share, that one may be another host's)");
  }
  const std::string own = SocketOfUser(get);
  return absl::StrCat(
      IsInContainer(get) ? "this is a container: give it the host's folder /run/ringd, where the "
                           "service's socket is (apptainer: --bind /run/ringd; docker: -v "
                           "/run/ringd:/run/ringd --network host), or "
                         : "",
      "start one with ", uid == 0 ? "`systemctl start ringd`, or with " : "",
      "`ringd --config /dev/null --socket ", own, "` and RINGD_SOCKET=", own, " for the ranks");
}

}  // namespace

std::string NoRingdAdvice(const std::string& socket, const Places& places,
                          const GetEnvironment& get, uid_t uid) {
  std::string advice = StartingOne(socket, get, uid);
  if (places.local_size < places.size) {
    return absl::StrCat(advice, ", on every node of the job");
  }
  absl::StrAppend(&advice, ", or start the job with `ringctl run -n ", places.size,
                  " -- python train.py`");
  const absl::string_view launcher = LauncherName(get);
  if (!launcher.empty()) absl::StrAppend(&advice, " in place of ", launcher);
  return advice;
}

}  // namespace ringd::client
