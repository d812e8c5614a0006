#include "client/cli/query/private_ringds.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "proto/base/unique_fd.h"
#include "proto/base/unix_socket.h"

namespace ringd::cli {
namespace {

namespace fs = std::filesystem;

class Runs {
 public:
  Runs() { REQUIRE(::mkdtemp(parent_.data()) != nullptr); }
  ~Runs() { fs::remove_all(parent_); }
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  const std::string& parent() const { return parent_; }

  // A node of a run, at whose socket somebody listens. As `ringctl run` has them, the folders are
  // their owner's alone.
  std::string AddNode(const std::string& run, const std::string& node) {
    for (const fs::path& folder : {fs::path(parent_) / run, fs::path(parent_) / run / node}) {
      fs::create_directories(folder);
      fs::permissions(folder, fs::perms::owner_all);
    }
    const std::string path = parent_ + "/" + run + "/" + node + "/ringd.sock";
    absl::StatusOr<UniqueFd> listener = ListenUnix(path, 0600);
    REQUIRE(listener.ok());
    listeners_.push_back(*std::move(listener));
    return path;
  }

  void StopLast() { listeners_.pop_back(); }

 private:
  std::string parent_ = "/tmp/runs-XXXXXX";
  std::vector<UniqueFd> listeners_;
};

TEST_CASE("PrivateSockets: finds every node of this user's runs") {
  Runs runs;
  CHECK(PrivateSockets(runs.parent()).empty());
  const std::string b = runs.AddNode("ringd-bbbbbb", "0");
  const std::string a1 = runs.AddNode("ringd-aaaaaa", "1");
  const std::string a0 = runs.AddNode("ringd-aaaaaa", "0");
  CHECK(PrivateSockets(runs.parent()) == std::vector<std::string>{a0, a1, b});
  CHECK(PrivateSockets("/no/such/folder").empty());
}

TEST_CASE("PrivateSockets: passes over other names, and sockets at which nobody listens") {
  Runs runs;
  runs.AddNode("ringd-aaaaaaa", "0");
  runs.AddNode("other-aaaaaa", "0");
  runs.AddNode("ringd-aaaaaa", "state");
  runs.AddNode("ringd-bbbbbb", "0");
  runs.StopLast();
  CHECK(PrivateSockets(runs.parent()).empty());
}

TEST_CASE("PrivateSockets: believes no folder that others may write, and no link") {
  Runs runs;
  const std::string socket = runs.AddNode("ringd-aaaaaa", "0");
  const fs::path run = fs::path(runs.parent()) / "ringd-aaaaaa";
  fs::create_directory_symlink(run, fs::path(runs.parent()) / "ringd-bbbbbb");
  CHECK(PrivateSockets(runs.parent()) == std::vector<std::string>{socket});
  fs::permissions(run, fs::perms::all);
  CHECK(PrivateSockets(runs.parent()).empty());
  fs::permissions(run, fs::perms::owner_all);
  fs::permissions(run / "0", fs::perms::owner_all | fs::perms::group_write);
  CHECK(PrivateSockets(runs.parent()).empty());
}

TEST_CASE("PrivateSockets: believes nothing of another user") {
  if (::geteuid() != 0) return;  // only root can make it
  Runs runs;
  const std::string socket = runs.AddNode("ringd-aaaaaa", "0");
  const fs::path run = fs::path(runs.parent()) / "ringd-aaaaaa";
  for (const fs::path& path : {run, run / "0", fs::path(socket)}) {
    CAPTURE(path);
    REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
    CHECK(PrivateSockets(runs.parent()).empty());
    REQUIRE(::chown(path.c_str(), 0, 0) == 0);
  }
  CHECK(PrivateSockets(runs.parent()).size() == 1);
}

}  // namespace
}  // namespace ringd::cli
