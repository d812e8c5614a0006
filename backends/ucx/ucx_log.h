// What UCX itself has to say.
#ifndef RINGD_BACKENDS_UCX_UCX_LOG_H_
#define RINGD_BACKENDS_UCX_UCX_LOG_H_

#include "backends/backend.h"

namespace ringd {

// From now on UCX's lines go to options.log and options.log_error, if there are any, and not to
// standard error. That is for the whole process: the last call's count. Requirement: LoadUcx.
//
// UCX reports every broken connection as an error. To us a lost peer is an event with a status,
// which is logged by whom it concerns: only what ends the process is told, unless UCX_LOG_LEVEL
// asks for more.
void RouteUcxLog(const TransportOptions& options);

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_LOG_H_
