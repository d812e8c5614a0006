// A connected socket's options and names.
#ifndef RINGD_BACKENDS_TCP_TCP_SOCKET_H_
#define RINGD_BACKENDS_TCP_TCP_SOCKET_H_

#include <chrono>
#include <string>

#include "backends/congestion_control.h"

namespace ringd {

// Sets up a connection for frames: no delay, an open receive window, and an end after about 40 s in
// which the other host answers nothing, or lets nothing be sent. What waits unsent is limited by
// the line. What the kernel refuses stays as it was.
void PrepareSocket(int fd, const CongestionControl& congestion_control) noexcept;

// "10.0.0.2:4711", of the other end; "?" if it can't be known any more.
std::string PeerAddressOf(int fd);

// The network interface that has this end's address: "eth0"; the address itself if none has.
std::string InterfaceOf(int fd);

// For how long there was something under way on the connection, or waiting to be sent, since it was
// made (the kernel's tcpi_busy_time). 0 if the kernel does not say.
std::chrono::microseconds BusyTimeOf(int fd) noexcept;

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_SOCKET_H_
