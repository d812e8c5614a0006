#include "client/cli/table.h"

#include <catch2/catch.hpp>

namespace ringd::cli {

TEST_CASE("Table: columns are as wide as their widest cell and aligned") {
  Table table({{"NAME"}, {"BYTES", Align::kRight}, {"STATE"}});
  table.AddRow({"a", "1 KiB", "running"});
  table.AddRow({"a-long-name", "12 B", "left"});
  CHECK(table.Render(false) ==
        "NAME         BYTES  STATE\n"
        "a            1 KiB  running\n"
        "a-long-name   12 B  left\n");
}

TEST_CASE("Table: no rows, no header") {
  const Table table({{"NAME"}});
  CHECK(table.empty());
  CHECK(table.Render(true).empty());
}

TEST_CASE("Table: empty cells keep their place and leave no space at a line's end") {
  Table table({{"A"}, {"B", Align::kRight}, {"C"}});
  table.AddRow({Cell("x"), Cell(""), Cell("z")});
  table.AddRow({Cell("x"), Cell(""), Cell("")});
  CHECK(table.Render(false, "  ") ==
        "  A  B  C\n"
        "  x     z\n"
        "  x\n");
}

TEST_CASE("Table: colours don't count as width") {
  Table table({{"S"}, {"T"}});
  table.AddRow({Cell("ok", Colour::kGreen), Cell("t")});
  CHECK(table.Render(true) ==
        "\x1b[1mS\x1b[0m   \x1b[1mT\x1b[0m\n"
        "\x1b[32mok\x1b[0m  t\n");
}

TEST_CASE("Table: characters count, not bytes") {
  Table table({{"N"}, {"T"}});
  table.AddRow({Cell("größe"), Cell("1")});
  table.AddRow({Cell("sizes"), Cell("2")});
  CHECK(table.Render(false) ==
        "N      T\n"
        "größe  1\n"
        "sizes  2\n");
}

TEST_CASE("Paint: what a job names itself can't drive the terminal") {
  CHECK(Paint("evil\x1b[2Jname\n", Colour::kNone, false) == "evil?[2Jname?");
  CHECK(Paint("x\x1b", Colour::kRed, true) == "\x1b[31mx?\x1b[0m");
}

}  // namespace ringd::cli
