// Asks a ringd, over its Unix socket, what ringctl shows.
#ifndef RINGD_CLIENT_CLI_QUERY_ADMIN_CLIENT_H_
#define RINGD_CLIENT_CLI_QUERY_ADMIN_CLIENT_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/rpc/admin.pb.h"

namespace ringd::cli {

inline constexpr char kDefaultSocket[] = "/run/ringd/ringd.sock";
// For a connection, and for a call that says nothing else.
inline constexpr std::chrono::seconds kQueryTimeout{5};

// One connection to one ringd.
//
// Thread safety: any thread, any method.
// Blocking: every call ends by its deadline. kUnavailable: ringd has gone, or takes no calls from
//   this user.
class AdminClient {
 public:
  // kNotFound, kUnavailable, kPermissionDenied: as ConnectUnix of proto/base/unix_socket.h.
  static absl::StatusOr<std::unique_ptr<AdminClient>> Connect(const std::string& socket,
                                                              Clock::time_point deadline);
  ~AdminClient();

  absl::StatusOr<v1::StatusReply> GetStatus(Clock::time_point deadline);
  // May take half a minute.
  absl::StatusOr<v1::GpusReply> GetGpus(Clock::time_point deadline);
  absl::StatusOr<v1::DrainReply> Drain(bool undo, Clock::time_point deadline);
  // `ended`: also those that have ended.
  absl::StatusOr<v1::JobsReply> ListJobs(const std::string& job_id, bool ended,
                                         Clock::time_point deadline);
  absl::StatusOr<v1::CommunicatorsReply> ListCommunicators(const std::string& job_id,
                                                           Clock::time_point deadline);
  absl::StatusOr<v1::QueuesReply> ListQueues(const std::string& job_id, Clock::time_point deadline);
  // What has happened to the job's operations since `positions`, by node; empty at first.
  absl::StatusOr<v1::TraceReply> TraceJob(const v1::TraceRequest& request,
                                          Clock::time_point deadline);
  absl::Status ReportExit(const v1::ReportExitRequest& request, Clock::time_point deadline);

 private:
  struct Connection;
  explicit AdminClient(std::unique_ptr<Connection> connection);

  const std::unique_ptr<Connection> connection_;
};

// What to tell somebody whose ringd does not answer at `socket`, and what could be done about it.
std::string ExplainUnreachable(const std::string& socket, const absl::Status& status);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_QUERY_ADMIN_CLIENT_H_
