// Replies of engines' calls, which come as bytes.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_CALL_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_CALL_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "daemon/engine/engine_control.h"

namespace ringd {

// Reads the reply and hands it on.
template <typename Reply>
Answer<std::string> ParsedAnswer(Answer<Reply> answer) {
  return [answer = std::move(answer)](const absl::Status& status, const std::string& bytes) {
    Reply reply;
    if (status.ok() && !reply.ParseFromString(bytes)) {
      return answer(absl::InternalError("the job's engine has answered what is no answer"), {});
    }
    answer(status, std::move(reply));
  };
}

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_CALL_H_
