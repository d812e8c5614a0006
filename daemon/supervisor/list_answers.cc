#include "daemon/supervisor/list_answers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "daemon/supervisor/part_count.h"

namespace ringd {
namespace {

using google::protobuf::Descriptor;

// About what one takes in memory.
constexpr std::size_t kPartBytes = 128;

}  // namespace

ListAnswers::ListAnswers(const std::vector<Asked>& asked, const Descriptor* type,
                         const Limits& limits, Done done)
    : type_(type), limits_(limits), done_(std::move(done)), missing_(asked.size()) {
  entries_.reserve(asked.size());
  for (const Asked& one : asked) {
    entries_.push_back(
        {.asked = one, .answer = absl::UnavailableError("no answer"), .room = nullptr});
  }
}

void ListAnswers::Take(std::size_t place, const absl::Status& status, EngineReply reply) {
  const PartCount count =
      status.ok() ? CountParts(*type_, reply.bytes, limits_.parts + 1) : PartCount();
  std::vector<Entry> entries;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_.at(place);
    if (status.ok()) {
      entry.bytes = reply.bytes.size() + count.rows * entry.asked.row_bytes;
      entry.parts = count.all;
      entry.weight = entry.bytes + entry.parts * kPartBytes;
      bytes_ += entry.bytes;
      parts_ += entry.parts;
      entry.answer = std::move(reply.bytes);
      entry.room = std::move(reply.room);
    } else {
      entry.answer = status;
    }
    while (bytes_ > limits_.bytes || parts_ > limits_.parts) LeaveOutLocked();
    if (--missing_ > 0) return;
    std::swap(entries, entries_);
  }
  std::vector<absl::StatusOr<std::string>> answers;
  answers.reserve(entries.size());
  for (Entry& each : entries) answers.push_back(std::move(each.answer));
  done_(std::move(answers));
}

void ListAnswers::LeaveOutLocked() {
  std::map<uid_t, std::size_t> of_user;
  for (const Entry& entry : entries_) of_user[entry.asked.user] += entry.weight;
  const auto longest = std::max_element(entries_.begin(), entries_.end(),
                                        [&of_user](const Entry& a, const Entry& b) {
                                          return std::pair(of_user[a.asked.user], a.weight) <
                                                 std::pair(of_user[b.asked.user], b.weight);
                                        });
  bytes_ -= std::exchange(longest->bytes, 0);
  parts_ -= std::exchange(longest->parts, 0);
  longest->weight = 0;
  longest->room = nullptr;
  longest->answer = absl::ResourceExhaustedError(
      "has answered more than fits into the list; ask for this job alone");
}

}  // namespace ringd
