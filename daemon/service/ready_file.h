// Tells whoever started ringd that it serves, and where.
#ifndef RINGD_DAEMON_SERVICE_READY_FILE_H_
#define RINGD_DAEMON_SERVICE_READY_FILE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace ringd {

// The file is there while ringd serves: {"pid":1,"socket":"/s","peer_address":"127.0.0.1:7117",
// "node_name":"a","version":"0.1.0"}.
//
// Ownership: the destructor removes the file.
class ReadyFile {
 public:
  // Removes what a ringd that has gone without a word has left at `path`.
  static void RemoveStale(const std::string& path);
  // Writes beside `path` and renames, so that a reader sees the whole or nothing; everybody may
  // read it. An empty path: no file.
  static absl::StatusOr<ReadyFile> Write(const std::string& path, const std::string& socket,
                                         const std::string& peer_address,
                                         const std::string& node_name);

  ReadyFile(ReadyFile&& other) noexcept;
  ReadyFile& operator=(ReadyFile&&) = delete;
  ~ReadyFile();

 private:
  explicit ReadyFile(std::string path) noexcept : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_READY_FILE_H_
