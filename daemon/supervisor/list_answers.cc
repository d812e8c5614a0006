#include "daemon/supervisor/list_answers.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace ringd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// About what one takes in memory.
constexpr std::size_t kPartBytes = 128;

// False: malformed, or more than `most`. Types of lists hold none of their own kind, so this is not
// deep. `rows`: null within one.
bool Count(const Descriptor& type, CodedInputStream& in, std::size_t most, std::size_t& parts,
           std::size_t* rows) {
  while (const std::uint32_t tag = in.ReadTag()) {
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    int length = 0;
    if (++parts > most || !in.ReadVarintSizeAsInt(&length)) return false;
    if (rows != nullptr) ++*rows;
    const FieldDescriptor* const field =
        type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field == nullptr || field->type() != FieldDescriptor::TYPE_MESSAGE) {
      if (!in.Skip(length)) return false;
      continue;
    }
    const CodedInputStream::Limit around = in.PushLimit(length);
    if (!Count(*field->message_type(), in, most, parts, nullptr)) return false;
    in.PopLimit(around);
  }
  return true;
}

}  // namespace

PartCount CountParts(const Descriptor& type, absl::string_view bytes, std::size_t most) {
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  PartCount count;
  static_cast<void>(Count(type, in, most, count.all, &count.rows));
  return count;
}

ListAnswers::ListAnswers(const std::vector<Asked>& asked, const Descriptor* type,
                         const Limits& limits, Done done)
    : type_(type), limits_(limits), done_(std::move(done)), missing_(asked.size()) {
  entries_.reserve(asked.size());
  for (const Asked& one : asked) {
    entries_.push_back({.asked = one, .answer = absl::UnavailableError("no answer")});
  }
}

void ListAnswers::Take(std::size_t place, const absl::Status& status, std::string bytes) {
  const PartCount count = status.ok() ? CountParts(*type_, bytes, limits_.parts + 1) : PartCount();
  std::vector<absl::StatusOr<std::string>> answers;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_.at(place);
    if (status.ok()) {
      entry.bytes = bytes.size() + count.rows * entry.asked.row_bytes;
      entry.parts = count.all;
      entry.weight = entry.bytes + entry.parts * kPartBytes;
      bytes_ += entry.bytes;
      parts_ += entry.parts;
      entry.answer = std::move(bytes);
    } else {
      entry.answer = status;
    }
    while (bytes_ > limits_.bytes || parts_ > limits_.parts) LeaveOutLocked();
    if (--missing_ > 0) return;
    for (Entry& each : entries_) answers.push_back(std::move(each.answer));
  }
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
  longest->answer = absl::ResourceExhaustedError(
      "has answered more than fits into the list; ask for this job alone");
}

}  // namespace ringd
