#include "client/cli/processes/line_assembler.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringd::cli {
namespace {

std::string Relayed(LineAssembler& lines, absl::string_view bytes) {
  std::string out;
  lines.Append(bytes, out);
  return out;
}

std::string Finished(LineAssembler& lines) {
  std::string out;
  lines.Finish(out);
  return out;
}

}  // namespace

TEST_CASE("LineAssembler: passes on whole lines only, each with the prefix") {
  LineAssembler lines("[3] ");
  CHECK(Relayed(lines, "one\ntw").empty() == false);
  CHECK(Relayed(lines, "o").empty());
  CHECK(Relayed(lines, "\n\nthree") == "[3] two\n[3] \n");
  CHECK(Finished(lines) == "[3] three\n");
  CHECK(Finished(lines).empty());
}

TEST_CASE("LineAssembler: keeps every byte as it is") {
  LineAssembler lines("> ");
  const std::string bytes("a\0b\r\xff\x1b[m\n", 9);
  CHECK(Relayed(lines, bytes) == "> " + bytes);
}

TEST_CASE("LineAssembler: without a prefix nothing is added, not even a line end") {
  LineAssembler lines("");
  CHECK(Relayed(lines, "a\nb") == "a\n");
  CHECK(Finished(lines) == "b");
}

TEST_CASE("LineAssembler: breaks a line that never ends") {
  LineAssembler lines("[0] ");
  const std::string piece(LineAssembler::kMaxLineBytes / 2, 'x');
  CHECK(Relayed(lines, piece).empty());
  CHECK(Relayed(lines, piece) == "[0] " + piece + piece + "\n");
  CHECK(Finished(lines).empty());
  LineAssembler bare("");
  Relayed(bare, piece);
  CHECK(Relayed(bare, piece) == piece + piece);
  CHECK(Relayed(bare, "end\n") == "end\n");
}

}  // namespace ringd::cli
