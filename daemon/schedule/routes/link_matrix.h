// What the links between all pairs of some nodes are like.
//
// Thread safety: plain data; any thread.
#ifndef RINGD_DAEMON_SCHEDULE_ROUTES_LINK_MATRIX_H_
#define RINGD_DAEMON_SCHEDULE_ROUTES_LINK_MATRIX_H_

#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace ringd {

// One way.
struct MeasuredLink {
  std::chrono::nanoseconds latency{0};
  double bytes_per_second = 0;

  friend bool operator==(const MeasuredLink&, const MeasuredLink&) = default;
};

// From figures of another process or a file; nothing if no measuring can have had them.
inline std::optional<MeasuredLink> CheckedLink(double latency_us, double bytes_per_second) {
  constexpr double kLongestUs = 60e6;
  constexpr double kSlowest = 1;  // bytes per second
  constexpr double kFastest = 1e15;
  if (!(latency_us >= 0 && latency_us <= kLongestUs)) return std::nullopt;
  if (!(bytes_per_second >= kSlowest && bytes_per_second <= kFastest)) return std::nullopt;
  return MeasuredLink{std::chrono::nanoseconds(std::llround(latency_us * 1e3)), bytes_per_second};
}

class LinkMatrix {
 public:
  LinkMatrix() = default;
  explicit LinkMatrix(std::size_t node_count)
      : node_count_(node_count), links_(node_count * node_count) {}

  std::size_t node_count() const noexcept { return node_count_; }
  bool empty() const noexcept { return node_count_ == 0; }
  // From one node to another; of a node to itself without meaning.
  MeasuredLink& at(std::size_t from, std::size_t to) { return links_[from * node_count_ + to]; }
  const MeasuredLink& at(std::size_t from, std::size_t to) const {
    return links_[from * node_count_ + to];
  }

  // The same links where node i is now `order[i]`.
  LinkMatrix InOrder(const std::vector<std::size_t>& order) const {
    LinkMatrix result(order.size());
    for (std::size_t from = 0; from < order.size(); ++from) {
      for (std::size_t to = 0; to < order.size(); ++to) {
        result.at(from, to) = at(order[from], order[to]);
      }
    }
    return result;
  }

  friend bool operator==(const LinkMatrix&, const LinkMatrix&) = default;

 private:
  std::size_t node_count_ = 0;
  std::vector<MeasuredLink> links_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_ROUTES_LINK_MATRIX_H_
