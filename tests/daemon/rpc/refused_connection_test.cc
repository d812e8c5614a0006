#include "daemon/rpc/refused_connection.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ringd {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::uint8_t kData = 0;
constexpr std::uint8_t kHeaders = 1;
constexpr std::uint8_t kSettings = 4;
constexpr std::uint8_t kPushPromise = 5;
constexpr std::uint8_t kPing = 6;
constexpr std::uint8_t kGoAway = 7;
constexpr std::uint8_t kContinuation = 9;
constexpr std::uint8_t kEnd = 0x4;  // of headers
constexpr std::uint8_t kAck = 0x1;

struct Frame {
  std::uint8_t type = 0;
  std::uint8_t flags = 0;
  std::uint32_t stream = 0;
  std::string payload;
  bool operator==(const Frame&) const = default;
};

std::string Bytes(std::uint32_t length, const Frame& frame) {
  std::string bytes;
  for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(length >> shift & 0xff));
  bytes.push_back(static_cast<char>(frame.type));
  bytes.push_back(static_cast<char>(frame.flags));
  for (const int shift : {24, 16, 8, 0}) {
    bytes.push_back(static_cast<char>(frame.stream >> shift & 0xff));
  }
  return bytes + frame.payload;
}
std::string Bytes(const Frame& frame) {
  return Bytes(static_cast<std::uint32_t>(frame.payload.size()), frame);
}

// What was sent; whole frames, or the test ends.
std::vector<Frame> FramesOf(const std::string& bytes) {
  std::vector<Frame> frames;
  const auto at = [&bytes](std::size_t i) {
    return std::uint32_t{static_cast<std::uint8_t>(bytes.at(i))};
  };
  for (std::size_t i = 0; i < bytes.size();) {
    const std::uint32_t length = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    Frame frame;
    frame.type = static_cast<std::uint8_t>(at(i + 3));
    frame.flags = static_cast<std::uint8_t>(at(i + 4));
    frame.stream = at(i + 5) << 24 | at(i + 6) << 16 | at(i + 7) << 8 | at(i + 8);
    REQUIRE(i + 9 + length <= bytes.size());
    frame.payload = bytes.substr(i + 9, length);
    frames.push_back(std::move(frame));
    i += 9 + length;
  }
  return frames;
}

// A connection that has begun, and its answers from then on.
struct Begun {
  Begun() {
    REQUIRE(connection.Take(std::string(kPreface) + Bytes({kSettings, 0, 0, ""})));
    REQUIRE(FramesOf(connection.output()) ==
            std::vector<Frame>{{kSettings, 0, 0, ""}, {kSettings, kAck, 0, ""}});
    connection.output().clear();
  }
  bool Take(const Frame& frame) { return connection.Take(Bytes(frame)); }
  std::vector<Frame> Answers() {
    std::vector<Frame> frames = FramesOf(connection.output());
    connection.output().clear();
    return frames;
  }

  RefusedConnection connection{"100 % no: ask \xc3\xa9"};
};

TEST_CASE("RefusedConnection: a call is answered with status 7 and the text, whatever it says") {
  const std::string headers = GENERATE("", "\x82\x86", "rubbish that is no HPACK");
  Begun begun;
  REQUIRE(begun.Take({kHeaders, kEnd, 1, headers}));
  const std::vector<Frame> answers = begun.Answers();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].type == kHeaders);
  CHECK(answers[0].flags == 5);  // ends headers and stream
  CHECK(answers[0].stream == 1);
  using namespace std::string_literals;  // NOLINT: for bytes that are 0
  CHECK(answers[0].payload ==
        "\x88"
        "\0\x0c"
        "content-type\x10"
        "application/grpc"
        "\0\x0b"
        "grpc-status\x01"
        "7"
        "\0\x0c"
        "grpc-message\x16"
        "100 %25 no: ask %C3%A9"s);
}

TEST_CASE("RefusedConnection: a long text is told whole") {
  const std::string text(300, 'x');
  RefusedConnection connection(text);
  REQUIRE(connection.Take(std::string(kPreface) + Bytes({kHeaders, kEnd, 1, "h"})));
  const std::vector<Frame> answers = FramesOf(connection.output());
  REQUIRE(answers.size() == 2);
  // 127 and 173, seven bits at a time.
  CHECK_THAT(answers[1].payload, Catch::EndsWith("grpc-message\x7f\xad\x01" + text));
}

TEST_CASE("RefusedConnection: bytes may come one by one") {
  RefusedConnection connection("no");
  const std::string bytes = std::string(kPreface) + Bytes({kSettings, 0, 0, "123456"}) +
                            Bytes({kPing, 0, 0, "pingpong"}) + Bytes({kHeaders, 0, 3, "he"}) +
                            Bytes({kContinuation, kEnd, 3, "aders"}) + Bytes({kData, 1, 3, "body"});
  for (const char byte : bytes) REQUIRE(connection.Take(absl::string_view(&byte, 1)));
  const std::vector<Frame> answers = FramesOf(connection.output());
  REQUIRE(answers.size() == 4);
  CHECK(answers[1] == Frame{kSettings, kAck, 0, ""});
  CHECK(answers[2] == Frame{kPing, kAck, 0, "pingpong"});
  CHECK(answers[3].type == kHeaders);
  CHECK(answers[3].stream == 3);
}

TEST_CASE("RefusedConnection: acknowledgements, trailers and what needs no answer get none") {
  Begun begun;
  REQUIRE(begun.Take({kHeaders, kEnd, 5, "h"}));
  CHECK(begun.Answers().size() == 1);
  constexpr std::uint8_t kReset = 3;
  constexpr std::uint8_t kUnknown = 77;
  for (const Frame& frame : {Frame{kSettings, kAck, 0, ""}, Frame{kPing, kAck, 0, "pingpong"},
                             Frame{kHeaders, kEnd, 5, "t"}, Frame{kHeaders, kEnd, 3, "late"},
                             Frame{kReset, 0, 5, "1234"}, Frame{kUnknown, 9, 2, "?"}}) {
    CHECK(begun.Take(frame));
  }
  CHECK(begun.Answers().empty());
}

TEST_CASE("RefusedConnection: who breaks the protocol is over") {
  const Frame wrong = GENERATE(Frame{kHeaders, kEnd, 2, "h"}, Frame{kHeaders, kEnd, 0, "h"},
                               Frame{kPing, 0, 0, "short"}, Frame{kContinuation, kEnd, 1, "h"},
                               Frame{kPushPromise, 0, 1, "1234"}, Frame{kGoAway, 0, 0, "12345678"});
  Begun begun;
  CHECK_FALSE(begun.Take(wrong));
  Begun within;
  REQUIRE(within.Take({kHeaders, 0, 1, "h"}));
  const Frame between = GENERATE(Frame{kData, 0, 1, "d"}, Frame{kHeaders, kEnd, 3, "h"},
                                 Frame{kContinuation, kEnd, 3, "h"}, Frame{kSettings, 0, 0, ""});
  CHECK_FALSE(within.Take(between));
}

TEST_CASE("RefusedConnection: a frame that says it is too long is over before it has come") {
  Begun begun;
  const std::uint32_t length = GENERATE(0xffffffu, 16'385u);
  CHECK_FALSE(begun.connection.Take(Bytes(length, {kHeaders, kEnd, 1, ""})));
  CHECK(begun.Answers().empty());
}

TEST_CASE("RefusedConnection: headers without end are over") {
  Begun begun;
  REQUIRE(begun.Take({kHeaders, 0, 1, "h"}));
  const std::string more = GENERATE(std::string(), std::string(16'384, 'h'));
  std::size_t taken = 0;
  while (taken < 10'000 && begun.Take({kContinuation, 0, 1, more})) ++taken;
  CHECK(taken < RefusedConnection::kMostFrames);
  CHECK(begun.Answers().empty());
}

TEST_CASE("RefusedConnection: so many calls are answered, then the client is sent away") {
  Begun begun;
  std::uint32_t stream = 1;
  while (begun.Take({kHeaders, kEnd, stream, "h"})) stream += 2;
  const std::vector<Frame> answers = begun.Answers();
  REQUIRE(answers.size() == RefusedConnection::kMostCalls + 1);
  CHECK(answers.back().type == kGoAway);
  CHECK(answers[answers.size() - 2].stream == stream);
}

TEST_CASE("RefusedConnection: whatever comes, little is said") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    INFO("round " << round);
    RefusedConnection connection("no");
    bool goes_on = connection.Take(kPreface);
    std::size_t said = 0;
    for (int i = 0; goes_on && i < 3000; ++i) {
      // Frames of any kind, now and then with a wrong length.
      Frame frame{static_cast<std::uint8_t>(random() % 12), static_cast<std::uint8_t>(random()),
                  static_cast<std::uint32_t>(random() % 9), std::string(random() % 10, '\xff')};
      std::string bytes = Bytes(frame);
      if (random() % 50 == 0) bytes[static_cast<std::size_t>(random() % 9)] ^= '\x01';
      goes_on = connection.Take(bytes);
      said += connection.output().size();
      connection.output().clear();
    }
    CHECK(said < std::size_t{64} << 10);
  }
}

TEST_CASE("RefusedConnection: what begins like no HTTP/2 is over") {
  RefusedConnection connection("no");
  CHECK(connection.Take("PRI * HT"));
  CHECK_FALSE(connection.Take("TP/1.1\r\n"));
}

}  // namespace
}  // namespace ringd
