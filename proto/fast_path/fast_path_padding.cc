// What keeps the congestion window of a pair's connection open.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>

#include "proto/fast_path/fast_path_exchange.h"
#include "proto/fast_path/fast_path_lock.h"

namespace ringd {
namespace {

constexpr std::uint64_t kFirstWindowSegments = 10;

std::optional<tcp_info> InfoOf(int connection) noexcept {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(connection, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  return info;
}

}  // namespace

bool FastPathExchange::ExceedsFirstWindow(std::uint64_t bytes) const noexcept {
  if (bytes == 0 || !view_.is_pair()) return false;
  const std::optional<tcp_info> info =
      InfoOf(connections_[view_.Parent(FastPathTree::kFlat)].get());
  return info.has_value() &&
         bytes + sizeof(FastPathMessage) > kFirstWindowSegments * info->tcpi_snd_mss;
}

bool FastPathExchange::Pad(std::uint64_t bytes, std::chrono::milliseconds idle) noexcept {
  static constexpr std::array<std::byte, kFastPathMostBytes> kNothing{};
  if (!view_.is_pair() || !Usable()) return false;
  const std::optional<tcp_info> info =
      InfoOf(connections_[view_.Parent(FastPathTree::kFlat)].get());
  // A connection that is stuck has sent nothing for long, either.
  if (!info.has_value() || info->tcpi_unacked > 0 || info->tcpi_notsent_bytes > 0) return false;
  if (std::chrono::milliseconds(info->tcpi_last_data_sent) < idle) return false;
  // Somebody may be in the middle of sending a message.
  const FastPathLock lock(view_.control().lock, own_name(), std::chrono::nanoseconds(0));
  if (!lock.held()) return false;
  if (PaddingsAhead() > 0) return false;
  ++paddings_sent_;
  const iovec padding{const_cast<std::byte*>(kNothing.data()),
                      std::min<std::uint64_t>(bytes, view_.limit_bytes())};
  SendTo(view_.Children(FastPathTree::kFlat), FastPathMessageKind::kPadding, {}, {&padding, 1});
  return Usable();
}

bool FastPathExchange::OwesPadding() const noexcept {
  return view_.is_pair() && Usable() && PaddingsAhead() < 0;
}

std::int32_t FastPathExchange::PaddingsAhead() const noexcept {
  return static_cast<std::int32_t>(paddings_sent_ -
                                   view_.control().paddings.load(std::memory_order_relaxed));
}

bool FastPathExchange::OnPadding() noexcept {
  view_.control().paddings.fetch_add(1, std::memory_order_relaxed);
  return view_.is_pair();
}

}  // namespace ringd
