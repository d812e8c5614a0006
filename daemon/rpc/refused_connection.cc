#include "daemon/rpc/refused_connection.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// RFC 9113, 6.
enum FrameType : std::uint8_t {
  kHeaders = 1,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kContinuation = 9,
};
constexpr std::uint8_t kAck = 0x1;
constexpr std::uint8_t kEndStream = 0x1;
constexpr std::uint8_t kEndHeaders = 0x4;
constexpr std::uint32_t kStreamBits = 0x7fffffff;

// RFC 7541, 5.2, without Huffman's code.
std::string HpackText(absl::string_view text) {
  std::string encoded;
  constexpr std::size_t kPrefix = 127;
  if (text.size() < kPrefix) {
    encoded.push_back(static_cast<char>(text.size()));
  } else {
    encoded.push_back(static_cast<char>(kPrefix));
    std::size_t left = text.size() - kPrefix;
    for (; left >= 128; left /= 128) encoded.push_back(static_cast<char>(left % 128 + 128));
    encoded.push_back(static_cast<char>(left));
  }
  return absl::StrCat(encoded, text);
}

// A field that no table keeps.
std::string HpackField(absl::string_view name, absl::string_view value) {
  return absl::StrCat(absl::string_view("\0", 1), HpackText(name), HpackText(value));
}

// As gRPC's messages are on the wire.
std::string PercentEncoded(absl::string_view text) {
  constexpr absl::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte <= 0x7e && c != '%') {
      encoded.push_back(c);
    } else {
      encoded.append({'%', kDigits[byte / 16], kDigits[byte % 16]});
    }
  }
  return encoded;
}

// gRPC's answer without a message: headers that are trailers, too.
std::string RefusalHeaders(absl::string_view why) {
  constexpr absl::string_view kPermissionDenied = "7";
  return absl::StrCat("\x88",  // :status 200, of HPACK's own table
                      HpackField("content-type", "application/grpc"),
                      HpackField("grpc-status", kPermissionDenied),
                      HpackField("grpc-message", PercentEncoded(why)));
}

void AppendNumber(std::string& bytes, std::uint32_t number, int count) {
  for (int shift = 8 * (count - 1); shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(number >> shift & 0xff));
  }
}

std::uint32_t NumberAt(const char* bytes, int count) {
  std::uint32_t number = 0;
  for (int i = 0; i < count; ++i) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

}  // namespace

RefusedConnection::RefusedConnection(absl::string_view why)
    : refusal_(RefusalHeaders(why.substr(0, 512))) {
  AddFrame(kSettings, 0, 0, "");
}

void RefusedConnection::AddFrame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                                 absl::string_view payload) {
  AppendNumber(output_, static_cast<std::uint32_t>(payload.size()), 3);
  AppendNumber(output_, type, 1);
  AppendNumber(output_, flags, 1);
  AppendNumber(output_, stream, 4);
  output_.append(payload.data(), payload.size());
}

bool RefusedConnection::Take(absl::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes_ > kMostBytes) return false;
  while (!bytes.empty()) {
    const bool goes_on = preface_ < kPreface.size()       ? TakePreface(bytes)
                         : header_ < header_bytes_.size() ? TakeHeader(bytes)
                                                          : TakePayload(bytes);
    if (!goes_on) return false;
  }
  return true;
}

bool RefusedConnection::TakePreface(absl::string_view& bytes) {
  const absl::string_view part = bytes.substr(0, kPreface.size() - preface_);
  if (part != kPreface.substr(preface_, part.size())) return false;
  preface_ += part.size();
  bytes.remove_prefix(part.size());
  return true;
}

bool RefusedConnection::TakeHeader(absl::string_view& bytes) {
  const std::size_t count = std::min(bytes.size(), header_bytes_.size() - header_);
  std::memcpy(header_bytes_.data() + header_, bytes.data(), count);
  header_ += count;
  bytes.remove_prefix(count);
  if (header_ < header_bytes_.size()) return true;
  frame_.length = NumberAt(header_bytes_.data(), 3);
  frame_.type = static_cast<std::uint8_t>(header_bytes_[3]);
  frame_.flags = static_cast<std::uint8_t>(header_bytes_[4]);
  frame_.stream = NumberAt(header_bytes_.data() + 5, 4) & kStreamBits;
  payload_ = 0;
  if (!BeginFrame()) return false;
  return frame_.length > 0 || EndFrame();
}

bool RefusedConnection::TakePayload(absl::string_view& bytes) {
  const std::size_t count = std::min<std::size_t>(bytes.size(), frame_.length - payload_);
  if (payload_ < ping_.size()) {
    std::memcpy(ping_.data() + payload_, bytes.data(), std::min(count, ping_.size() - payload_));
  }
  payload_ += count;
  bytes.remove_prefix(count);
  return payload_ < frame_.length || EndFrame();
}

bool RefusedConnection::BeginFrame() {
  if (frame_.length > kMostFrameBytes || ++frames_ > kMostFrames) return false;
  // Between the frames of one block of headers there is no other.
  const bool goes_on = frame_.type == kContinuation;
  if (goes_on != (headers_of_ != 0) || (goes_on && frame_.stream != headers_of_)) return false;
  if (frame_.type == kHeaders && frame_.stream % 2 == 0) return false;
  if (frame_.type == kPing && frame_.length != ping_.size()) return false;
  return frame_.type != kPushPromise && frame_.type != kGoAway;
}

bool RefusedConnection::EndFrame() {
  header_ = 0;
  switch (frame_.type) {
    case kSettings:
      if ((frame_.flags & kAck) == 0) AddFrame(kSettings, kAck, 0, "");
      return true;
    case kPing:
      if ((frame_.flags & kAck) == 0) {
        AddFrame(kPing, kAck, 0, absl::string_view(ping_.data(), ping_.size()));
      }
      return true;
    case kHeaders:
    case kContinuation:
      headers_of_ = frame_.stream;
      return (frame_.flags & kEndHeaders) == 0 || EndHeaders();
    default:  // bodies, windows, priorities, cancellations: nobody looks at them
      return true;
  }
}

bool RefusedConnection::EndHeaders() {
  const std::uint32_t stream = headers_of_;
  headers_of_ = 0;
  // Of a call that has been answered: its trailers.
  if (stream <= last_stream_) return true;
  last_stream_ = stream;
  AddFrame(kHeaders, kEndStream | kEndHeaders, stream, refusal_);
  if (++calls_ < kMostCalls) return true;
  // The client is to open another connection for more.
  std::string last;
  AppendNumber(last, last_stream_, 4);
  AppendNumber(last, 0, 4);
  AddFrame(kGoAway, 0, 0, last);
  return false;
}

}  // namespace ringd
