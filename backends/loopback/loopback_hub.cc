#include "backends/loopback/loopback_hub.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/loopback/loopback_communicator.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// Thread safety, ownership: see Transport.
class LoopbackTransport final : public Transport {
 public:
  explicit LoopbackTransport(std::shared_ptr<LoopbackHub::State> hub)
      : hub_(std::move(hub)), event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const MutexLock lock(hub_->mutex);
    address_ = absl::StrCat("loopback:", hub_->next_address++);
    hub_->event_fds[address_] = event_fd_.get();
  }

  ~LoopbackTransport() override {
    const MutexLock lock(hub_->mutex);
    hub_->dead.insert(address_);
    hub_->event_fds.erase(address_);
    const std::uint64_t one = 1;
    for (const auto& [address, fd] : hub_->event_fds) {
      [[maybe_unused]] const auto written = ::write(fd, &one, sizeof(one));
    }
  }

  absl::string_view name() const noexcept override { return "loopback"; }
  const std::string& LocalAddress() const noexcept override { return address_; }
  int event_fd() const noexcept override { return event_fd_.get(); }

  [[nodiscard]] bool Arm() noexcept override {
    // The counter before the state: what changes after this wakes us.
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(event_fd_.get(), &count, sizeof(count));
    return std::none_of(communicators_.begin(), communicators_.end(),
                        [](LoopbackCommunicator* one) { return one->HasPendingWork(); }) &&
           got <= 0;
  }

  std::size_t Progress() noexcept override {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(event_fd_.get(), &count, sizeof(count));
    std::size_t work = 0;
    for (LoopbackCommunicator* communicator : communicators_) work += communicator->Advance();
    return work;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const CommunicatorSpec& spec) override {
    const auto self = static_cast<std::size_t>(spec.self.value());
    if (spec.self.value() < 0 || self >= spec.addresses.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "node ", spec.self.value(), " is not one of the ", spec.addresses.size(), " nodes"));
    }
    for (const std::string& address : spec.addresses) {
      if (address.rfind("loopback:", 0) != 0) {
        return absl::InvalidArgumentError("an address is no loopback address");
      }
    }
    const std::pair<std::uint64_t, std::int32_t> key(spec.wire_id, spec.self.value());
    if (!open_.insert(key).second) {
      return absl::AlreadyExistsError(
          absl::StrCat("node ", key.second, " of this job's generation is open already"));
    }
    auto place = std::make_shared<LoopbackCommunicator*>(nullptr);
    auto communicator = std::make_unique<LoopbackCommunicator>(hub_, spec, [this, key, place] {
      open_.erase(key);
      std::erase(communicators_, *place);
    });
    *place = communicator.get();
    communicators_.push_back(communicator.get());
    return communicator;
  }

 private:
  const std::shared_ptr<LoopbackHub::State> hub_;
  const UniqueFd event_fd_;
  std::string address_;
  std::vector<LoopbackCommunicator*> communicators_;
  std::set<std::pair<std::uint64_t, std::int32_t>> open_;
};

}  // namespace

LoopbackHub::LoopbackHub() : state_(std::make_shared<State>()) {}

LoopbackHub::~LoopbackHub() = default;

std::unique_ptr<Transport> LoopbackHub::CreateTransport() {
  return std::make_unique<LoopbackTransport>(state_);
}

}  // namespace ringd
