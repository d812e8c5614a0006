// Replies of engines' calls, which come as bytes.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_CALL_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_CALL_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/rpc/node_calls.h"
#include "daemon/supervisor/engine_reply.h"
#include "daemon/supervisor/part_count.h"

namespace ringd {

// Of a reply: as of a list (ListAnswers). In memory each takes about 128 bytes, whatever it took on
// the wire.
inline constexpr std::size_t kMostReplyParts = 2'000'000;

// Reads the reply and hands it on.
template <typename Reply>
Answer<EngineReply> ParsedAnswer(Answer<Reply> answer) {
  return [answer = std::move(answer)](const absl::Status& status, const EngineReply& sent) {
    Reply reply;
    if (status.ok() &&
        CountParts(*Reply::descriptor(), sent.bytes, kMostReplyParts + 1).all > kMostReplyParts) {
      return answer(absl::InternalError(absl::StrCat("the job's engine has answered more than ",
                                                     kMostReplyParts, " parts")),
                    {});
    }
    if (status.ok() && !reply.ParseFromString(sent.bytes)) {
      return answer(absl::InternalError("the job's engine has answered what is no answer"), {});
    }
    answer(status, std::move(reply));
  };
}

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_CALL_H_
