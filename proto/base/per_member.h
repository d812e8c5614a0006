// Arrays with one thing per member: per rank that a job has on this node.
#ifndef RINGD_PROTO_BASE_PER_MEMBER_H_
#define RINGD_PROTO_BASE_PER_MEMBER_H_

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace ringd {

// One small thing of each member, without allocation for the usual number of members.
template <typename T>
class PerMember {
 public:
  explicit PerMember(std::size_t count) : count_(count) {
    if (count > kUsual) many_.resize(count);
  }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  std::span<T> span() noexcept { return {data(), count_}; }
  std::size_t size() const noexcept { return count_; }

 private:
  static constexpr std::size_t kUsual = 16;
  T* data() noexcept { return count_ > kUsual ? many_.data() : few_.data(); }
  const T* data() const noexcept { return count_ > kUsual ? many_.data() : few_.data(); }
  const std::size_t count_;
  std::array<T, kUsual> few_{};
  std::vector<T> many_;
};

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_PER_MEMBER_H_
