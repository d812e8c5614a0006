// Where other nodes reach this one's door for data.
#ifndef RINGD_DAEMON_SUPERVISOR_DATA_ADDRESSES_H_
#define RINGD_DAEMON_SUPERVISOR_DATA_ADDRESSES_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/config/config.h"
#include "daemon/door/door.h"
#include "proto/door/door_message.h"

namespace ringd {

// Data comes on data_interfaces, where the door listens too from now on; the rank exchange
// on the first of them. The local address of their WireSockets (wire_address.h).
//   kNotFound: this node has no address that others could reach; the message names the setting.
//   kInvalidArgument: too many interfaces. Else what the kernel says.
absl::StatusOr<std::string> OpenDataAddresses(const Config& config, Door* door,
                                              DoorPurpose purpose);

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_DATA_ADDRESSES_H_
