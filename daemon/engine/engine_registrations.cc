// RegisterTensors: descriptions are checked on the caller's thread and numbered by the engine.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"

namespace ringd {
namespace {

// Of one session. Names are kept as long as the job lives.
constexpr std::size_t kMaxRegistrations = 65'536;

}  // namespace

void Engine::RegisterTensors(const Caller&, absl::string_view token,
                             const v1::RegisterTensorsRequest& request,
                             Answer<v1::RegisterTensorsReply> answer) {
  const auto pending = Begin(std::move(answer));
  auto result = std::make_shared<v1::RegisterTensorsReply>();
  auto call = [this, token = std::string(token), request, result]() -> absl::Status {
    SessionEntry* entry = FindToken(token);
    if (entry == nullptr) return absl::UnauthenticatedError("no session has this token");
    if (entry->job == nullptr) return absl::FailedPreconditionError("join a job first");
    if (entry->session->registration_count() + static_cast<std::size_t>(request.tensors_size()) >
        kMaxRegistrations) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", kMaxRegistrations,
                       " different tensors: give tensors that come again the same name each time"));
    }
    // All are checked before any leaves a trace.
    std::vector<Registration> checked;
    for (const v1::TensorDescription& description : request.tensors()) {
      auto registration = CheckDescription(description, entry->job->options().size);
      if (!registration.ok()) return registration.status();
      checked.push_back(*std::move(registration));
    }
    for (Registration& registration : checked) {
      absl::Status status = entry->job->Register(*entry->session, registration);
      if (!status.ok()) return status;
    }
    for (Registration& registration : checked) {
      result->add_tensors(registration.tensor);
      result->add_metas(registration.meta_id);
      result->add_registrations(entry->session->Register(std::move(registration)).value());
    }
    return absl::OkStatus();
  };
  PostCall(pending, [pending, call, result] {
    pending->Finish(call(), [result] { return std::move(*result); });
  });
}

}  // namespace ringd
