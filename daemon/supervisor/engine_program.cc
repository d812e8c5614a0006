#include "daemon/supervisor/engine_program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/engine_process/walls.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr char kName[] = "ringd-engine";

}  // namespace

absl::StatusOr<EngineProgram> EngineProgram::At(std::string path) {
  UniqueFd file(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode) || ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) {
    return ErrnoStatus(EACCES, absl::StrCat("execute ", path));
  }
  return EngineProgram(std::move(path), std::move(file));
}

bool EngineProgram::IsReplaced() const {
  struct stat there {};
  struct stat held {};
  return ::stat(path_.c_str(), &there) != 0 || ::fstat(file_.get(), &held) != 0 ||
         there.st_dev != held.st_dev || there.st_ino != held.st_ino;
}

absl::StatusOr<EngineProgram> EngineProgram::Open(const Config& config) {
  std::string path = config.engine_program;
  if (path.empty()) {
    // A file that has been replaced is still named with its folder.
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) {
      return absl::FailedPreconditionError(
          absl::StrCat("where this program is can't be seen (/proc/self/exe: ", error.message(),
                       "): name ", kName, " with engine_program"));
    }
    path = (self.parent_path() / kName).string();
  }
  absl::StatusOr<EngineProgram> program = At(std::move(path));
  if (program.ok()) return program;
  return absl::FailedPreconditionError(
      absl::StrCat("engine_program = \"", config.engine_program, "\": ", program.status().message(),
                   "; install ", kName, " beside ringd, or name it with this setting"));
}

std::vector<std::string> EngineArguments::For(const Config& config) {
  // The names may be those of ringd's own user and root; then the walls do no harm.
  admits_others_ =
      admits_others_ || !config.allowed_users.empty() || !config.allowed_groups.empty();
  std::vector<std::string> arguments;
  if (!config.data_interfaces.empty()) {
    arguments = {kNcclInterfacesArgument, absl::StrJoin(config.data_interfaces, ",")};
  }
  if (!admits_others_) {
    arguments.emplace_back(kOneUserArgument);
    return arguments;
  }
  for (const std::string& library : {config.cuda_library, config.nccl_library}) {
    // A name alone is looked up where the wall lets libraries be read anyway.
    if (!absl::StartsWith(library, "/")) continue;
    arguments.insert(arguments.end(), {kLibraryArgument, library});
  }
  return arguments;
}

}  // namespace ringd
