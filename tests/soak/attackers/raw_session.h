// A session that speaks the protocol without the library, which would be too polite: it cuts long
// messages, and doesn't ask what it knows.
#ifndef RINGD_TESTS_SOAK_ATTACKERS_RAW_SESSION_H_
#define RINGD_TESTS_SOAK_ATTACKERS_RAW_SESSION_H_

#include <grpcpp/client_context.h>

#include <memory>
#include <string>
#include <vector>

#include "proto/base/unique_fd.h"
#include "proto/rpc/client.grpc.pb.h"

namespace ringd::soak {

struct RawSession {
  // Attaches; the connection is invalid if ringd refuses.
  explicit RawSession(const std::string& path);

  bool attached() const { return lifeline.valid(); }
  // The gRPC side; made when it is needed.
  v1::Client::Stub& stub();
  // Of a call that may take `seconds`.
  std::unique_ptr<grpc::ClientContext> Call(int seconds) const;
  // A job of its own, of one rank. 0: refused.
  std::uint32_t JoinAlone(const std::string& job);

  UniqueFd lifeline;
  std::vector<UniqueFd> descriptors;
  std::string token;

 private:
  std::unique_ptr<v1::Client::Stub> stub_;
};

}  // namespace ringd::soak

#endif  // RINGD_TESTS_SOAK_ATTACKERS_RAW_SESSION_H_
