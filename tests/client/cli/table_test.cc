#include "client/cli/views/table.h"

#include <catch2/catch.hpp>

namespace ringd::cli {

TEST_CASE("Table: columns are as wide as their widest cell and aligned") {
  Table table({{"NAME"}, {"BYTES", Align::kRight}, {"STATE"}});
  table.AddRow({"a", "1 KiB", "running"});
  table.AddRow({"a-long-name", "12 B", "left"});
  CHECK(table.Render({}) ==
        "NAME         BYTES  STATE\n"
        "a            1 KiB  running\n"
        "a-long-name   12 B  left\n");
}

TEST_CASE("Table: no rows, no header") {
  const Table table({{"NAME"}});
  CHECK(table.empty());
  CHECK(table.Render({.colours = true}).empty());
}

TEST_CASE("Table: empty cells keep their place and leave no space at a line's end") {
  Table table({{"A"}, {"B", Align::kRight}, {"C"}});
  table.AddRow({Cell("x"), Cell(""), Cell("z")});
  table.AddRow({Cell("x"), Cell(""), Cell("")});
  CHECK(table.Render({}, "  ") ==
        "  A  B  C\n"
        "  x     z\n"
        "  x\n");
}

TEST_CASE("Table: colours don't count as width") {
  Table table({{"S"}, {"T"}});
  table.AddRow({Cell("ok", Colour::kGreen), Cell("t")});
  CHECK(table.Render({.colours = true}) ==
        "\x1b[1mS\x1b[0m   \x1b[1mT\x1b[0m\n"
        "\x1b[32mok\x1b[0m  t\n");
}

TEST_CASE("Table: characters count, not bytes") {
  Table table({{"N"}, {"T"}});
  table.AddRow({Cell("größe"), Cell("1")});
  table.AddRow({Cell("sizes"), Cell("2")});
  CHECK(table.Render({}) ==
        "N      T\n"
        "größe  1\n"
        "sizes  2\n");
}

TEST_CASE("Table: one that is too wide leaves out optional columns, then shortens names") {
  Table table({{"JOB", Align::kLeft, Fit::kShortened},
               {"RANKS", Align::kRight},
               {"WEIGHT", Align::kRight, Fit::kOptional},
               {"AT", Align::kLeft, Fit::kOptional}});
  table.AddRow({"a-job-with-a-long-name", "4", "1", "host:7117"});
  CHECK(table.Render({.width = 48}) ==
        "JOB                     RANKS  WEIGHT  AT\n"
        "a-job-with-a-long-name      4       1  host:7117\n");
  CHECK(table.Render({.width = 47}) ==
        "JOB                     RANKS  WEIGHT\n"
        "a-job-with-a-long-name      4       1\n");
  CHECK(table.Render({.width = 22}, "  ") ==
        "  JOB            RANKS\n"
        "  a-job...-name      4\n");
  // There is a limit to that.
  CHECK(table.Render({.width = 3}) ==
        "JOB       RANKS\n"
        "a-j...me      4\n");
}

TEST_CASE("ShortenMiddle: keeps both ends, and characters whole") {
  CHECK(ShortenMiddle("resnet", 6) == "resnet");
  CHECK(ShortenMiddle("resnet-50-run-17", 10) == "resn...-17");
  CHECK(ShortenMiddle("ääääöööö", 7) == "ää...öö");
  CHECK(ShortenMiddle("resnet", 2) == "..");
  CHECK(ShortenMiddle("", 0).empty());
}

TEST_CASE("WrapWords: breaks between words, never within one") {
  CHECK(WrapWords("one two three", "  ", 0) == "one two three");
  CHECK(WrapWords("one two three", "  ", 9) == "one two\n  three");
  CHECK(WrapWords("a-word-that-is-too-long b", "  ", 9) == "a-word-that-is-too-long\n  b");
}

TEST_CASE("Paint: what a job names itself can't drive the terminal") {
  CHECK(Paint("evil\x1b[2J\nname\x9b", Colour::kNone, false) == "evil?[2J name?");
  CHECK(Paint("x\x1b", Colour::kRed, true) == "\x1b[31mx?\x1b[0m");
}

}  // namespace ringd::cli
