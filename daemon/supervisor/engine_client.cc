#include "daemon/supervisor/engine_client.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/channel/engine_status.h"
#include "daemon/sessions/notice_queue.h"
#include "proto/base/errno_status.h"
#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

// Whose turn an answer is: the calls of one user to engines of one. To read what these answer costs
// time, and who asks may be an operator.
CallThread::Flow FlowOf(const Caller& caller, uid_t of_engine) {
  return CallThread::Flow{caller.uid} << 32 | of_engine;
}

double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

EngineClient::EngineClient(std::uint64_t number, const Parts& parts)
    : number_(number), parts_(parts) {}

EngineClient::~EngineClient() = default;

absl::StatusOr<std::shared_ptr<EngineClient>> EngineClient::Create(std::uint64_t number,
                                                                   const Parts& parts) {
  absl::StatusOr<std::pair<UniqueFd, UniqueFd>> ends = UnixSocketPair();
  if (!ends.ok()) return ends.status();
  // No engine has any to send.
  RefuseDescriptors(ends->first.get());
  // Refused never.
  ::setsockopt(ends->first.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof(kSocketBytes));
  ChannelLimits limits;
  limits.takes_fds = false;
  std::shared_ptr<EngineClient> engine(new EngineClient(number, parts));
  engine->engine_end_ = std::move(ends->second);
  absl::StatusOr<std::shared_ptr<Channel>> channel =
      parts.loop->Add(std::move(ends->first),
                      {[engine](ChannelFrame frame) { engine->OnFrame(std::move(frame)); },
                       [engine](const absl::Status& why) {
                         engine->channel_ended_.store(true, std::memory_order_release);
                         if (!absl::IsUnavailable(why)) {
                           return engine->End(absl::StrCat("broke the protocol: ", why.message()));
                         }
                         engine->parts_.owner->OnEnding(*engine);
                       },
                       [engine](std::size_t bytes) { return engine->RoomFor(bytes); },
                       [engine] { return engine->ChannelFlow(); }},
                      limits);
  if (!channel.ok()) return channel.status();
  const MutexLock lock(engine->mutex_);
  engine->channel_ = *std::move(channel);
  engine->life_.heard = Clock::now();
  return engine;
}

absl::Status EngineClient::Spawn(const EngineProgram& program,
                                 const std::vector<std::string>& arguments) {
  absl::StatusOr<std::unique_ptr<EngineProcess>> process =
      EngineProcess::Start(program, arguments, engine_end_.get());
  // From now on its end is seen at ours.
  engine_end_.Reset();
  if (!process.ok()) return process.status();
  process_ = *std::move(process);
  pid_.store(process_->pid(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status EngineClient::Begin(v1::EngineStart start, Place place, const std::string& node_name) {
  start_ = start;
  start_.clear_settings();
  start_.clear_kept_state();
  start_.clear_unmeasured();
  node_name_ = node_name;
  began_unix_seconds_ = UnixSeconds();
  begun_.store(true, std::memory_order_release);
  std::vector<UniqueFd> fds;
  for (const int fd : {place.account->fd(), place.slot->roster_fd(), place.slot->tags_fd()}) {
    fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!fds.back().valid()) return ErrnoStatus(errno, "dup of a segment");
  }
  start.set_slot(static_cast<std::uint32_t>(place.slot->number()));
  {
    const MutexLock lock(mutex_);
    place_ = std::move(place);
    life_.heard = Clock::now();
  }
  v1::ToEngine order;
  *order.mutable_start() = std::move(start);
  Send(order, std::move(fds));
  return absl::OkStatus();
}

void EngineClient::SetWeight(std::uint32_t weight) {
  const MutexLock lock(mutex_);
  if (place_.slot != nullptr) place_.slot->SetWeight(weight);
}

std::string EngineClient::Name() const {
  return absl::StrCat("the engine of job '", job_id(), "' (pid ", pid(), " on ", node_name_, ")");
}

std::uint64_t EngineClient::ChannelFlow() const {
  // One that stands ready is nobody's yet.
  return begun() ? uid() : (std::uint64_t{1} << 32) + number_;
}

bool EngineClient::Send(const v1::ToEngine& order, std::vector<UniqueFd> fds,
                        CountedPlaces::Place place) {
  std::shared_ptr<Channel> channel;
  {
    const MutexLock lock(mutex_);
    channel = channel_;
  }
  return channel != nullptr &&
         channel->Send(order.SerializeAsString(), std::move(fds), std::move(place));
}

std::shared_ptr<UserPlaces> EngineClient::user_places() {
  const MutexLock lock(mutex_);
  return place_.network == nullptr ? nullptr : place_.network->user_places();
}

std::shared_ptr<const void> EngineClient::RoomFor(std::size_t bytes) {
  using Both = std::pair<CountedPlaces::Place, CountedPlaces::Place>;
  CountedPlaces::Place own = frame_bytes_.Take(bytes);
  if (own == nullptr) return nullptr;
  const std::shared_ptr<UserPlaces> user = user_places();
  if (user == nullptr) return own;
  CountedPlaces::Place of_user = user->frame_bytes.Take(bytes);
  if (of_user == nullptr) return nullptr;
  return std::make_shared<const Both>(std::move(own), std::move(of_user));
}

void EngineClient::SendNetworkEvent(v1::EngineNetworkEvent event, std::vector<UniqueFd> fds,
                                    CountedPlaces::Place place) {
  v1::ToEngine order;
  *order.mutable_network() = std::move(event);
  if (place == nullptr && fds.empty()) {
    place = event_bytes_.Take(order.ByteSizeLong() + Channel::kFrameBytes);
    if (place == nullptr) return End("asks for more and does not take what it was told");
  }
  Send(order, std::move(fds), std::move(place));
}

absl::Status EngineClient::GiveSession(std::unique_ptr<SessionResources>& given) {
  UniqueFd kept(::fcntl(given->lifeline.get(), F_DUPFD_CLOEXEC, 0));
  if (!kept.valid()) return ErrnoStatus(errno, "dup of a lifeline");
  const std::unique_ptr<SessionResources> session = std::move(given);
  v1::ToEngine order;
  v1::EngineSession* const message = order.mutable_session();
  message->set_id(session->id.value());
  message->set_token(session->token);
  message->set_pid(session->peer.pid);
  message->set_uid(session->peer.uid);
  message->set_gid(session->peer.gid);
  message->set_arena_bytes(session->arena_bytes);
  message->set_submission_capacity(session->layout.submission_capacity);
  message->set_completion_capacity(session->layout.completion_capacity);
  message->set_has_pidfd(session->pidfd.valid());
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(session->lifeline));
  fds.push_back(std::move(session->event_fd));
  fds.push_back(std::move(session->segment_fd));
  fds.push_back(std::move(session->arena_fd));
  if (session->pidfd.valid()) fds.push_back(std::move(session->pidfd));
  CountedPlaces::Place place;
  {
    const MutexLock lock(mutex_);
    // Nobody would end it.
    if (buried_.has_value()) {
      fds.push_back(std::move(kept));
      parts_.isolated->Discard(std::move(fds));
      return *buried_;
    }
    ++sessions_given_;
    place = session->admission;
    held_[session->id] = Held{std::move(session->admission), session->token, std::move(kept)};
  }
  // If it can't be sent the engine has ended, or is about to: then its end is the session's. Its
  // place is taken as long as its descriptors are here, whatever the engine says of its end.
  Send(order, std::move(fds), std::move(place));
  return absl::OkStatus();
}

std::uint64_t EngineClient::sessions_given() {
  const MutexLock lock(mutex_);
  return sessions_given_;
}

std::size_t EngineClient::sessions() {
  const MutexLock lock(mutex_);
  return held_.size();
}

bool EngineClient::IsUsed() {
  std::shared_ptr<EngineNetwork> network;
  {
    const MutexLock lock(mutex_);
    if (!held_.empty() || sessions_given_ == 0) return true;
    network = place_.network;
  }
  return network != nullptr && network->HasConnections();
}

EngineClient::Life EngineClient::life() {
  const MutexLock lock(mutex_);
  Life life = life_;
  life.is_unread = channel_ != nullptr && channel_->HasUntaken();
  return life;
}

std::uint64_t EngineClient::Call(Order order, Clock::duration patience,
                                 Answer<EngineReply> answer) {
  // A call keeps the engine's record no longer than it waits.
  const auto self = shared_from_this();
  std::uint64_t number = 0;
  std::shared_ptr<PendingCall<EngineReply>> call;
  std::optional<absl::Status> buried;
  {
    const MutexLock lock(mutex_);
    number = ++last_call_;
    call = std::make_shared<PendingCall<EngineReply>>(
        *parts_.calls,
        [self, number, answer = std::move(answer)](const absl::Status& status, EngineReply reply) {
          self->Forget(number);
          answer(status, std::move(reply));
        },
        FlowOf(order.caller, uid()));
    buried = buried_;
    if (!buried.has_value()) calls_.emplace(number, call);
  }
  if (buried.has_value()) {
    call->Finish(*buried);
    return number;
  }
  if (patience > Clock::duration::zero()) {
    call->SetPatience(patience, [self, patience] {
      return absl::DeadlineExceededError(
          absl::StrCat("pid ", self->pid(), " has not answered for ",
                       std::chrono::duration_cast<std::chrono::seconds>(patience).count(), " s"));
    });
  }
  v1::ToEngine message;
  v1::EngineCall* const sent = message.mutable_call();
  sent->set_number(number);
  sent->set_kind(order.kind);
  sent->set_uid(order.caller.uid);
  sent->set_is_operator(order.caller.is_operator);
  sent->set_token(std::move(order.token));
  sent->set_request(std::move(order.request));
  sent->set_job_key(std::move(order.job_key));
  if (const std::shared_ptr<UserPlaces> user = user_places()) {
    CountedPlaces::Place place =
        user->call_bytes.Take(message.ByteSizeLong() + Channel::kFrameBytes);
    if (place != nullptr) {
      Send(message, {}, std::move(place));
    } else {
      call->Finish(absl::ResourceExhaustedError(absl::StrCat("engines of this user have not taken ",
                                                             UserPlaces::kMostCallBytes >> 20,
                                                             " MiB of calls")));
    }
  }
  return number;
}

void EngineClient::Forget(std::uint64_t call) {
  const MutexLock lock(mutex_);
  calls_.erase(call);
}

void EngineClient::GiveUp(std::uint64_t call) {
  std::shared_ptr<PendingCall<EngineReply>> pending;
  {
    const MutexLock lock(mutex_);
    const auto found = calls_.find(call);
    if (found == calls_.end()) return;
    pending = std::move(found->second);
    calls_.erase(found);
  }
  pending->Finish(absl::CancelledError("the caller has gone"));
  v1::ToEngine order;
  order.mutable_call_over()->set_number(call);
  Send(order);
}

void EngineClient::Reload(const v1::EngineReload& reload) {
  v1::ToEngine order;
  *order.mutable_reload() = reload;
  Send(order);
}

void EngineClient::SetDraining(bool draining) {
  v1::ToEngine order;
  order.mutable_drain()->set_undo(!draining);
  Send(order);
}

void EngineClient::TurnedAway(const std::string& why) {
  v1::ToEngine order;
  order.mutable_turned_away()->set_why(why);
  // Trainers can have such joins without end.
  CountedPlaces::Place place = event_bytes_.Take(order.ByteSizeLong() + Channel::kFrameBytes);
  if (place != nullptr) Send(order, {}, std::move(place));
}

void EngineClient::Stop() {
  stopping_.store(true, std::memory_order_relaxed);
  v1::ToEngine order;
  order.mutable_stop();
  Send(order);
}

void EngineClient::End(const std::string& why) {
  {
    const MutexLock lock(mutex_);
    if (why_ended_.empty()) why_ended_ = why;
  }
  parts_.owner->OnEnding(*this);
}

void EngineClient::CutChannel() {
  const MutexLock lock(mutex_);
  if (channel_ != nullptr) ::shutdown(channel_->socket(), SHUT_RDWR);
}

std::string EngineClient::why_ended() {
  const MutexLock lock(mutex_);
  return why_ended_;
}

EngineClient::Remains EngineClient::Bury(const absl::Status& cause) {
  Remains remains;
  std::shared_ptr<Channel> channel;
  std::map<SessionId, Held> held;
  std::map<std::uint64_t, std::shared_ptr<PendingCall<EngineReply>>> calls;
  {
    const MutexLock lock(mutex_);
    buried_ = cause;
    std::swap(channel, channel_);
    std::swap(remains.place, place_);
    std::swap(held, held_);
    std::swap(calls, calls_);
  }
  jobs_.store(0, std::memory_order_relaxed);
  for (auto& [number, call] : calls) call->Finish(cause);
  std::vector<UniqueFd> lifelines;
  for (auto& [id, session] : held) {
    remains.tokens.push_back(session.token);
    // As the engine tells that a job has failed: what it sends after that is not heard.
    NoticeQueue notices;
    notices.SendLast(session.lifeline.get(), NoticeKind::kFailure, cause.message());
    ::shutdown(session.lifeline.get(), SHUT_RDWR);
    lifelines.push_back(std::move(session.lifeline));
  }
  parts_.isolated->Discard(std::move(lifelines));
  if (remains.place.network != nullptr) remains.place.network->SayLast(cause);
  return remains;
}

}  // namespace ringd
