// What keeps the congestion window of a pair's connection open.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "proto/fast_path/fast_path_exchange.h"
#include "proto/fast_path/fast_path_lock.h"

namespace ringd {
namespace {

constexpr std::uint64_t kFirstWindowSegments = 10;

}  // namespace

bool FastPathExchange::NeedsPadding(std::uint64_t bytes,
                                    std::chrono::milliseconds idle) const noexcept {
  if (!view_.is_pair() || !Usable()) return false;
  tcp_info info{};
  socklen_t length = sizeof(info);
  const int connection = connections_[1 - view_.node_index()].get();
  if (::getsockopt(connection, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  const std::uint64_t first_window = kFirstWindowSegments * info.tcpi_snd_mss;
  return bytes + sizeof(FastPathMessage) > first_window &&
         std::chrono::milliseconds(info.tcpi_last_data_sent) >= idle;
}

bool FastPathExchange::Pad(std::uint64_t bytes) noexcept {
  static constexpr std::array<std::byte, kFastPathMostBytes> kNothing{};
  if (!view_.is_pair() || !Usable()) return false;
  // Somebody may be in the middle of sending a message.
  const FastPathLock lock(view_.control().lock, own_name(), std::chrono::nanoseconds(0));
  if (!lock.held()) return false;
  // The other sends as many as this one, so that each is the other's acknowledgement: two that nobody has read at most.
  const std::uint32_t taken = view_.control().paddings.load(std::memory_order_relaxed);
  if (static_cast<std::int32_t>(paddings_sent_ - taken) > 0) return false;
  ++paddings_sent_;
  const iovec padding{const_cast<std::byte*>(kNothing.data()),
                      std::min<std::uint64_t>(bytes, view_.limit_bytes())};
  SendTo(NodeBit(1 - view_.node_index()), FastPathMessageKind::kPadding, {}, {&padding, 1});
  return true;
}

bool FastPathExchange::OnPadding() noexcept {
  view_.control().paddings.fetch_add(1, std::memory_order_relaxed);
  return view_.is_pair();
}

}  // namespace ringd
