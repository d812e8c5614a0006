// UnregisterTensors: descriptions are given back by the engine, a few at a time.
#include <memory>
#include <utility>
#include <vector>

#include "daemon/engine/engine.h"

namespace ringd {

// One call. It comes into the flow of its session's registrations, so that the two keep their
// order.
//
// Thread safety: none; the engine's, then the call thread's.
// Ownership: shared by the queue and the answer. What was given back is freed on the call thread.
class Engine::UnregistrationWork final : public SlicedWork,
                                         public std::enable_shared_from_this<UnregistrationWork> {
 public:
  using Call = std::shared_ptr<PendingCall<v1::UnregisterTensorsReply>>;

  UnregistrationWork(Engine* engine, std::shared_ptr<RegistrationBook> book,
                     const v1::UnregisterTensorsRequest& request, Call call)
      : engine_(engine),
        book_(std::move(book)),
        call_(std::move(call)),
        numbers_(request.registrations().begin(), request.registrations().end()) {}

  std::size_t Step(std::size_t budget) override;
  bool done() const override { return done_; }
  void Abandon(const absl::Status& why) override { End(why); }

 private:
  absl::Status GiveBack(Session& session, Job& job, std::uint32_t number);
  void End(const absl::Status& status);

  Engine* const engine_;
  const std::shared_ptr<RegistrationBook> book_;
  const Call call_;
  const std::vector<std::uint32_t> numbers_;
  std::vector<std::unique_ptr<const Registration>> given_back_;  // the first of numbers_
  bool done_ = false;
};

std::size_t Engine::UnregistrationWork::Step(std::size_t budget) {
  const absl::StatusOr<SessionEntry*> member = engine_->FindMember(book_->session());
  absl::Status status = member.status();
  std::size_t entries = 1;
  for (; status.ok() && given_back_.size() < numbers_.size() && entries <= budget; ++entries) {
    status = GiveBack(*(*member)->session, *(*member)->job, numbers_[given_back_.size()]);
  }
  if (!status.ok() || given_back_.size() == numbers_.size()) End(status);
  return entries;
}

absl::Status Engine::UnregistrationWork::GiveBack(Session& session, Job& job,
                                                  std::uint32_t number) {
  auto registration = session.Unregister(number);
  if (!registration.ok()) return registration.status();
  job.Release(**registration);
  session.registration_bytes().GiveBack(SessionBytesOf(**registration));
  given_back_.push_back(*std::move(registration));
  return absl::OkStatus();
}

void Engine::UnregistrationWork::End(const absl::Status& status) {
  if (std::exchange(done_, true)) return;
  // Also if the call fails, or has ended meanwhile. After the replies that have told these numbers,
  // which add them to the book; before this one's.
  engine_->calls_.Post([self = shared_from_this()] {
    for (std::size_t i = 0; i < self->given_back_.size(); ++i) {
      const Registration& registration = *self->given_back_[i];
      self->book_->Remove(DescriptionKey(registration, MetaKey(registration.meta)),
                          self->numbers_[i]);
    }
    self->given_back_.clear();
  });
  call_->Finish(status);
}

void Engine::UnregisterTensors(const Caller&, absl::string_view token,
                               const v1::UnregisterTensorsRequest& request,
                               Answer<v1::UnregisterTensorsReply> answer) {
  const auto call = BeginSliced(std::move(answer));
  const auto book = FindBook(token, call);
  if (book == nullptr) return;
  PostSliced(call, {book->session().value(), {}},
             std::make_shared<UnregistrationWork>(this, book, request, call));
}

}  // namespace ringd
