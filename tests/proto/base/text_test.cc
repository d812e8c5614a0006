#include "proto/base/text.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringd {
namespace {

TEST_CASE("CutToLength: cuts between characters") {
  CHECK(CutToLength("short", 5) == "short");
  CHECK(CutToLength("longer", 5) == "longe");
  CHECK(CutToLength("abé", 3) == "ab");  // é has two bytes
  CHECK(CutToLength("abé", 4) == "abé");
  CHECK(CutToLength("€€", 5) == "€");  // three each
  CHECK(CutToLength("", 0).empty());
  CHECK(CutToLength("é", 0).empty());
}

TEST_CASE("CutToLength: takes what is no UTF-8, too") {
  CHECK(CutToLength(std::string(10, '\x80'), 5).empty());
  CHECK(CutToLength("\xff\xff\xff", 2) == "\xff\xff");
}

TEST_CASE("IsUtf8: takes well-formed characters alone") {
  for (const char* text : {"", "plain", "é", "€", "\xf0\x9f\x98\x80"}) CHECK(IsUtf8(text));
  for (const char* text : {
           "\xff",              // never a first byte
           "\xc3",              // ends too early
           "\x80",              // begins too late
           "\xc0\xaf",          // overlong
           "\xe0\x80\xaf",      // likewise
           "\xed\xa0\x80",      // a surrogate
           "\xf4\x90\x80\x80",  // beyond U+10FFFF
           "\xc3(",             // no continuation
       }) {
    CAPTURE(text);
    CHECK_FALSE(IsUtf8(text));
  }
}

TEST_CASE("CleanLine: is one line of UTF-8 without control characters, else the text") {
  CHECK(CleanLine("train-1 (grüß) €") == "train-1 (grüß) €");
  CHECK(CleanLine("a\x1b]0;hi\x07z\n\t\r\v\f\x7f") == "a?]0;hi?z     ?");
  CHECK(CleanLine("a\xc2\x9b"
                  "2J") == "a?2J");  // C1's CSI
  CHECK(CleanLine("\xc2\xa0\xc2") == "\xc2\xa0?");
  CHECK(CleanLine("\xff\xfe|\xed\xa0\x80|\xe2\x82") == "??|???|??");
  CHECK(CleanLine(absl::string_view("a\0b", 3)) == "a?b");
  CHECK(CleanLine("").empty());
}

}  // namespace
}  // namespace ringd
