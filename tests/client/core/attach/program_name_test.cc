#include "client/core/attach/program_name.h"

#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace ringd::client {
namespace {

// By spaces, as a shell would without quotes.
std::string NameOf(const std::string& command_line) {
  std::istringstream words(command_line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  return ProgramName(arguments);
}

TEST_CASE("ProgramName: a Python is called by its script") {
  CHECK(NameOf("python train.py") == "train.py");
  CHECK(NameOf("/venv/bin/python3.11 -u /home/me/secret/x.py --flag --token=abc") == "x.py");
  CHECK(NameOf("pypy3 -W ignore -X dev -uBE run.py y.py") == "run.py");
  CHECK(NameOf("python -Wignore -Xdev run.py") == "run.py");
  CHECK(NameOf("python -uW ignore run.py") == "run.py");
  CHECK(NameOf("python --check-hash-based-pycs always run.py") == "run.py");
  CHECK(NameOf("python -- run.py") == "run.py");
  CHECK(NameOf("python folder/package/") == "package");
}

TEST_CASE("ProgramName: or by its module") {
  CHECK(NameOf("python -m pkg.mod --lr 3") == "pkg.mod");
  CHECK(NameOf("python -mpkg.mod") == "pkg.mod");
  CHECK(NameOf("python3 -u -m pkg.mod x.py") == "pkg.mod");
  CHECK(NameOf("python3 -um pkg.mod") == "pkg.mod");
}

TEST_CASE(
    "ProgramName: a Python whose code has no name is called by its own, and code is never told") {
  CHECK(ProgramName(std::vector<std::string>{"/usr/bin/python3", "-c", "secret = 'abc'"}) ==
        "python3");
  CHECK(ProgramName(std::vector<std::string>{"python", "-uc", "secret"}) == "python");
  CHECK(ProgramName(std::vector<std::string>{"python", "-csecret"}) == "python");
  CHECK(NameOf("python - secret") == "python");
  CHECK(NameOf("python") == "python");
  CHECK(NameOf("python -m") == "python");
  CHECK(NameOf("python -W") == "python");
  CHECK(NameOf("python --") == "python");
  CHECK(NameOf("python .") == "python");
  CHECK(ProgramName(std::vector<std::string>{"python", ""}) == "python");
}

TEST_CASE("ProgramName: another program is called by its own name, without folders and arguments") {
  CHECK(NameOf("/home/me/secret/trainer --token=abc x.py") == "trainer");
  CHECK(ProgramName(std::vector<std::string>{"worker 3: token=abc"}) == "worker");
  CHECK(ProgramName({}) == "");
}

TEST_CASE("ProgramName: what can't be printed or is long does no harm") {
  CHECK(ProgramName(std::vector<std::string>{"python", "a\nb\x1b[31m\xff.py"}) == "a?b?[31m?.py");
  CHECK(ProgramName(std::vector<std::string>{"python", std::string(1000, 'x')}) ==
        std::string(64, 'x'));
}

TEST_CASE("OwnProgramName: this test's") { CHECK(OwnProgramName() == "program_name_test"); }

}  // namespace
}  // namespace ringd::client
