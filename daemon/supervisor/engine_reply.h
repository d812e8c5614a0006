// What an engine has answered.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_REPLY_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_REPLY_H_

#include <memory>
#include <string>

namespace ringd {

// Ownership: whoever keeps the bytes keeps the room, too: so what a user's engines have answered
//   counts until it is needed no more.
struct EngineReply {
  std::string bytes;  // serialised: input
  std::shared_ptr<const void> room;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_REPLY_H_
