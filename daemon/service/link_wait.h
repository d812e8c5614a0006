// Interfaces without a carrier when ringd starts: waited for, and taken when they come later.
#ifndef RINGD_DAEMON_SERVICE_LINK_WAIT_H_
#define RINGD_DAEMON_SERVICE_LINK_WAIT_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ringd {

// The transport takes the interfaces that carry something when it is opened, and no others
// afterwards.
//
// Thread safety: one thread at a time. Does not block; its owner asks it several times a second.
class LinkWait {
 public:
  // What keeps these interfaces, in words; empty if nothing does (DescribeUnreadyLinks).
  using Describe = std::function<std::string(const std::vector<std::string>&)>;

  LinkWait(std::vector<std::string> interfaces, Describe describe)
      : interfaces_(std::move(interfaces)), describe_(std::move(describe)) {}

  // What is to be said now: when something keeps them that did not before, and when nothing does
  // any more.
  std::optional<std::string> Look();
  bool Ready() const noexcept { return problems_.empty(); }
  // As of the last look.
  const std::string& problems() const noexcept { return problems_; }

 private:
  const std::vector<std::string> interfaces_;
  const Describe describe_;
  std::string problems_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_LINK_WAIT_H_
