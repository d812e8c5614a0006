// An engine's network half in the supervisor, without the engine.
#ifndef RINGD_TESTS_DAEMON_SUPERVISOR_BARE_ENGINE_H_
#define RINGD_TESTS_DAEMON_SUPERVISOR_BARE_ENGINE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/supervisor/engine_network.h"
#include "daemon/supervisor/node_network.h"
#include "proto/base/counted_places.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/door/hmac.h"

namespace ringd {

inline constexpr uid_t kEngineUser = 1001;

inline v1::EngineNetworkRequest DialRequestOf(std::uint64_t number, const std::string& host_port) {
  v1::EngineNetworkRequest request;
  request.mutable_dial_coordinator()->set_dial(number);
  request.mutable_dial_coordinator()->set_host_port(host_port);
  request.mutable_dial_coordinator()->set_key(std::string(kSha256Bytes, 'k'));
  request.mutable_dial_coordinator()->set_patience_ms(60'000);
  return request;
}

inline v1::EngineNetworkRequest OpenRequest(std::uint64_t wire_id) {
  v1::EngineNetworkRequest request;
  v1::EngineWireOpen& open = *request.mutable_wire_open();
  open.set_purpose(2);
  open.set_wire_id(wire_id);
  open.set_key(std::string(kSha256Bytes, 'k'));
  for (const char* name : {"node-0", "node-1"}) {
    open.add_addresses("127.0.0.1:1");
    open.add_node_names(name);
  }
  return request;
}

// An engine's supervisor's half alone, and what it is told.
struct BareEngine {
  explicit BareEngine(NodeNetwork* node, uid_t user = kEngineUser)
      : half(node->AddEngine(user, "job",
                             [this](v1::EngineNetworkEvent event, std::vector<UniqueFd> fds,
                                    CountedPlaces::Place place) {
                               const MutexLock lock(mutex);
                               events.push_back(std::move(event));
                               for (UniqueFd& fd : fds) sockets.push_back(std::move(fd));
                               places.push_back(std::move(place));
                             })) {}
  std::size_t told() {
    const MutexLock lock(mutex);
    return events.size();
  }
  v1::EngineNetworkEvent last() {
    const MutexLock lock(mutex);
    return events.back();
  }
  std::size_t sockets_told() {
    const MutexLock lock(mutex);
    return sockets.size();
  }
  // As if it had been sent all.
  void ForgetPlaces() {
    const MutexLock lock(mutex);
    places.clear();
  }

  Mutex mutex;
  std::vector<v1::EngineNetworkEvent> events ABSL_GUARDED_BY(mutex);
  std::vector<UniqueFd> sockets ABSL_GUARDED_BY(mutex);
  std::vector<CountedPlaces::Place> places ABSL_GUARDED_BY(mutex);  // of the events
  std::unique_ptr<EngineNetwork> half;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_SUPERVISOR_BARE_ENGINE_H_
