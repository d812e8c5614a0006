// RegisterTensors: descriptions are checked on the caller's thread and numbered by the engine, a
// few at a time.
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"

namespace ringd {

// One call. Its life: Prepare on the caller's thread, Step on the engine's, the reply on the call
// thread.
//
// Thread safety: none; it moves from one thread to the next.
// Ownership: shared by the queue and the answer.
class Engine::RegistrationWork final : public SlicedWork,
                                       public std::enable_shared_from_this<RegistrationWork> {
 public:
  using Call = std::shared_ptr<PendingCall<v1::RegisterTensorsReply>>;

  RegistrationWork(Engine* engine, std::shared_ptr<RegistrationBook> book, Call call)
      : engine_(engine), book_(std::move(book)), call_(std::move(call)), paid_(book_->account()) {}

  // Checks all descriptions, finds those that are known or equal, and takes the others' bytes.
  absl::Status Prepare(const v1::RegisterTensorsRequest& request);

  std::size_t Step(std::size_t budget) override;
  bool done() const override { return done_; }
  void Abandon(const absl::Status& why) override { End(why); }

 private:
  struct Unknown {
    Registration registration;
    std::string meta_key;
    std::string key;
    std::uint64_t session_bytes = 0;
    RegistrationNumbers numbers;  // once the engine has given them
  };
  static constexpr std::size_t kKnown = std::numeric_limits<std::size_t>::max();
  // A place in the reply: the numbers, or where in unknown_ they will be.
  struct Place {
    std::size_t unknown = kKnown;
    RegistrationNumbers numbers;
  };

  absl::Status Number(Session& session, Job& job, Unknown& unknown);
  void End(const absl::Status& status);
  v1::RegisterTensorsReply MakeReply();

  Engine* const engine_;
  const std::shared_ptr<RegistrationBook> book_;
  const Call call_;
  RegistrationBytes paid_;
  std::vector<Place> places_;
  std::vector<Unknown> unknown_;
  std::size_t next_ = 0;
  bool done_ = false;
};

absl::Status Engine::RegistrationWork::Prepare(const v1::RegisterTensorsRequest& request) {
  const std::optional<RegistrationBook::Place> place = book_->place();
  if (!place.has_value()) return NotJoined();
  const bool one_node = place->size == place->local_size;
  std::unordered_map<std::string, std::size_t> in_request;
  places_.reserve(static_cast<std::size_t>(request.tensors_size()));
  for (const v1::TensorDescription& description : request.tensors()) {
    absl::StatusOr<Registration> checked = CheckDescription(description, place->size);
    if (!checked.ok()) return checked.status();
    std::string meta_key = MetaKey(checked->meta);
    std::string key = DescriptionKey(*checked, meta_key);
    if (const auto known = book_->Find(key)) {
      places_.push_back({kKnown, *known});
      continue;
    }
    const auto [entry, added] = in_request.try_emplace(key, unknown_.size());
    places_.push_back({entry->second, {}});
    if (!added) continue;
    const std::uint64_t session_bytes = SessionBytesOf(*checked);
    const bool through_ringd = !one_node || checked->meta.place == TensorPlace::kDevice;
    const std::size_t queues = through_ringd ? static_cast<std::size_t>(place->local_size) : 0;
    if (absl::Status status =
            paid_.Take(session_bytes + TableBytesOfNames(1, checked->name.size(), queues) +
                       TableBytesOfMeta(*checked));
        !status.ok()) {
      return status;
    }
    unknown_.push_back(
        {*std::move(checked), std::move(meta_key), std::move(key), session_bytes, {}});
  }
  return absl::OkStatus();
}

std::size_t Engine::RegistrationWork::Step(std::size_t budget) {
  const absl::StatusOr<SessionEntry*> member = engine_->FindMember(book_->session());
  absl::Status status = member.status();
  if (status.ok() && (*member)->session->registration_count() + unknown_.size() - next_ >
                         RegistrationTable::kMost) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("more than ", RegistrationTable::kMost,
                     " different tensors: give tensors that come again the same name each time, "
                     "and give back descriptions that do not come again (ringd_unregister)"));
  }
  std::size_t entries = 1;
  for (; status.ok() && next_ < unknown_.size() && entries <= budget; ++entries) {
    status = Number(*(*member)->session, *(*member)->job, unknown_[next_]);
    if (status.ok()) ++next_;
  }
  if (!status.ok() || next_ == unknown_.size()) End(status);
  return entries;
}

absl::Status Engine::RegistrationWork::Number(Session& session, Job& job, Unknown& unknown) {
  Registration& registration = unknown.registration;
  const absl::Status status = job.Number(session, registration, unknown.meta_key);
  job.PayForTables(registration.communicator, paid_);
  if (!status.ok()) return status;
  unknown.numbers = {0, registration.tensor, registration.meta_id};
  const std::size_t before = session.registration_count();
  unknown.numbers.registration = session.Register(std::move(registration)).value();
  if (session.registration_count() > before) {
    session.registration_bytes().TakeOver(paid_, unknown.session_bytes);
  } else {
    job.Release(*session.FindRegistration(unknown.numbers.registration));  // it is held once
  }
  return absl::OkStatus();
}

void Engine::RegistrationWork::End(const absl::Status& status) {
  if (std::exchange(done_, true)) return;
  call_->Finish(status, [self = shared_from_this()] { return self->MakeReply(); });
}

v1::RegisterTensorsReply Engine::RegistrationWork::MakeReply() {
  v1::RegisterTensorsReply reply;
  for (const Place& place : places_) {
    const RegistrationNumbers& numbers =
        place.unknown == kKnown ? place.numbers : unknown_[place.unknown].numbers;
    reply.add_registrations(numbers.registration);
    reply.add_tensors(numbers.tensor);
    reply.add_metas(numbers.meta);
  }
  for (Unknown& unknown : unknown_) book_->Add(std::move(unknown.key), unknown.numbers);
  return reply;
}

void Engine::RegisterTensors(const Caller&, absl::string_view token,
                             const v1::RegisterTensorsRequest& request,
                             Answer<v1::RegisterTensorsReply> answer) {
  const auto call = BeginSliced(std::move(answer));
  const auto book = FindBook(token, call);
  if (book == nullptr) return;
  auto work = std::make_shared<RegistrationWork>(this, book, call);
  if (absl::Status status = work->Prepare(request); !status.ok()) {
    call->Finish(status);
    return;
  }
  PostSliced(call, {book->session().value(), {}}, std::move(work));
}

}  // namespace ringd
