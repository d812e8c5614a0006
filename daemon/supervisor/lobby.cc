#include "daemon/supervisor/lobby.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <array>
#include <utility>
#include <vector>

#include "daemon/sessions/notice_queue.h"

namespace ringd {
namespace {

// Of the epoll set; a session's are its number, and which descriptor.
constexpr std::uint64_t kWakeKey = ~std::uint64_t{0};
constexpr int kSignBits = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<Lobby>> Lobby::Create(IsolatedExecutor* isolated) {
  absl::StatusOr<WakingEpoll> epoll = WakingEpoll::Create(kWakeKey);
  if (!epoll.ok()) return epoll.status();
  std::unique_ptr<Lobby> lobby(new Lobby(*std::move(epoll), isolated));
  lobby->thread_ = std::thread(&Lobby::Run, lobby.get());
  ::pthread_setname_np(lobby->thread_.native_handle(), "ringd-lobby");
  return lobby;
}

Lobby::Lobby(WakingEpoll epoll, IsolatedExecutor* isolated)
    : epoll_(std::move(epoll)), isolated_(isolated) {}

Lobby::~Lobby() { Stop(""); }

void Lobby::Add(std::unique_ptr<SessionResources> session) {
  std::string why;
  {
    const MutexLock lock(mutex_);
    if (!stopped_ && sessions_.contains(session->id)) {
      // Numbers come round, and somebody has stood here for so long.
      why = "its number is another's: try again";
    } else if (!stopped_) {
      tokens_.emplace(session->token, session->id);
      const SessionResources& added =
          *sessions_.emplace(session->id, std::move(session)).first->second;
      // Whoever has gone already is seen at once.
      Watch(added);
      CountLocked();
      return;
    }
    if (stopped_) why = why_stopped_;
  }
  End(std::move(session), why);
}

void Lobby::End(std::unique_ptr<SessionResources> session, const std::string& why) {
  HangUp(session->lifeline.get(), why);
  // Whoever waits for its place has it, whatever closing the rest takes.
  session->admission.reset();
  isolated_->Destroy(std::shared_ptr<const SessionResources>(std::move(session)));
}

void Lobby::Watch(const SessionResources& session) noexcept {
  const auto add = [this, &session](int fd, std::uint32_t events, Sign sign) {
    if (fd < 0) return;
    epoll_.Watch(fd, events,
                 std::uint64_t{session.id.value()} << kSignBits | static_cast<unsigned>(sign));
  };
  // A trainer has no reason to write on its lifeline; what it writes must not keep us awake.
  add(session.lifeline.get(), EPOLLRDHUP, Sign::kLifeline);
  add(session.pidfd.get(), EPOLLIN, Sign::kProcess);
}

std::unique_ptr<SessionResources> Lobby::TakeLocked(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  std::unique_ptr<SessionResources> session = std::move(found->second);
  sessions_.erase(found);
  tokens_.erase(session->token);
  CountLocked();
  for (const int fd : {session->lifeline.get(), session->pidfd.get()}) {
    if (fd >= 0) epoll_.Unwatch(fd);
  }
  return session;
}

std::unique_ptr<SessionResources> Lobby::Take(absl::string_view token) {
  const MutexLock lock(mutex_);
  const auto found = tokens_.find(std::string(token));
  if (found == tokens_.end()) return nullptr;
  ++leaving_;
  return TakeLocked(found->second);
}

void Lobby::Settle() {
  const MutexLock lock(mutex_);
  --leaving_;
  CountLocked();
}

void Lobby::CountLocked() {
  // Release: pairs with size().
  size_.store(sessions_.size() + leaving_, std::memory_order_release);
}

bool Lobby::Has(absl::string_view token) {
  const MutexLock lock(mutex_);
  return tokens_.contains(std::string(token));
}

void Lobby::Stop(absl::string_view why) {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    why_stopped_ = std::string(why);
  }
  epoll_.Wake();
  thread_.join();
}

void Lobby::Run() {
  std::array<epoll_event, 64> events;
  for (bool stopped = false; !stopped;) {
    const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), -1);
    std::vector<std::unique_ptr<SessionResources>> gone;
    std::string why = "has ended";
    {
      const MutexLock lock(mutex_);
      for (int i = 0; i < count; ++i) {
        const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
        if (key == kWakeKey) continue;
        // Null: it has been taken meanwhile, or had both signs.
        auto session = TakeLocked(SessionId(static_cast<std::uint32_t>(key >> kSignBits)));
        if (session != nullptr) gone.push_back(std::move(session));
      }
      stopped = stopped_;
      if (stopped) {
        why = why_stopped_;
        while (!sessions_.empty()) gone.push_back(TakeLocked(sessions_.begin()->first));
      }
    }
    for (auto& session : gone) End(std::move(session), why);
  }
}

}  // namespace ringd
