#include "daemon/supervisor/part_count.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>

namespace ringd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

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

}  // namespace ringd
