#include "client/cli/views/printable.h"

#include <catch2/catch.hpp>

namespace ringd::cli {

TEST_CASE("Printable: control characters become question marks, nothing else changes") {
  CHECK(Printable("train-1 (gr\xc3\xbc\xc3\x9f)") == "train-1 (gr\xc3\xbc\xc3\x9f)");
  CHECK(Printable("a\x1b]0;hi\x07z\n\t\x7f") == "a?]0;hi?z???");
  // C1: U+009B begins a command as ESC [ does.
  CHECK(Printable("a\xc2\x9b"
                  "2Jz") == "a?2Jz");
  CHECK(Printable("\xc2\xa0\xc2") == "\xc2\xa0\xc2");
  CHECK(Printable("").empty());
}

}  // namespace ringd::cli
