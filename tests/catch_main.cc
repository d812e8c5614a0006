// The main function of every C++ test: Catch2's, with what Bazel expects of a test.
//
//   XML_OUTPUT_FILE        gets one JUnit test case per TEST_CASE, so that tests/run counts and
//                          names cases.
//                          A case that can't be tried here says WARN("skipped: why") and returns:
//                          it counts as neither passed nor failed, and tests/run names it.
//   TESTBRIDGE_TEST_ONLY   (bazel test --test_filter=...) selects test cases by Catch2's patterns.
#define CATCH_CONFIG_RUNNER
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace ringd {
namespace {

struct CaseResult {
  std::string name;
  bool passed;
  std::string failures;
  std::string skipped;  // why; empty: it was not
  double seconds;
};

constexpr std::string_view kSkipped = "skipped: ";

std::string EscapeXml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\n':
        escaped += "&#10;";
        break;
      case '\t':
        escaped += "&#9;";
        break;
      default:
        // XML 1.0 has no other control characters; bytes past ASCII may be no UTF-8.
        escaped += (c < 0x20 || c == 0x7f) ? '?' : c;
    }
  }
  return escaped;
}

// Writes the results when the run ends, also when Catch2 ends it because of a fatal signal. Only
// the process that started the run writes: forked children inherit this object.
class JUnitListener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    TestEventListenerBase::testCaseStarting(info);
    failures_.clear();
    skipped_.clear();
    case_start_ = std::chrono::steady_clock::now();
  }

  bool assertionEnded(const Catch::AssertionStats& stats) override {
    const Catch::AssertionResult& result = stats.assertionResult;
    if (result.getResultType() == Catch::ResultWas::Warning) {
      const std::string message(result.getMessage());
      if (message.starts_with(kSkipped)) skipped_ = message.substr(kSkipped.size());
    }
    if (!result.isOk()) {
      failures_ += std::string(result.getSourceInfo().file) + ":" +
                   std::to_string(result.getSourceInfo().line) + ": " +
                   result.getExpressionInMacro() + " " + std::string(result.getMessage()) + "\n";
    }
    return true;
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    TestEventListenerBase::testCaseEnded(stats);
    const auto elapsed = std::chrono::steady_clock::now() - case_start_;
    results_.push_back({stats.testInfo.name, stats.totals.testCases.failed == 0, failures_,
                        skipped_, std::chrono::duration<double>(elapsed).count()});
  }

  void testRunEnded(const Catch::TestRunStats& stats) override {
    TestEventListenerBase::testRunEnded(stats);
    const char* path = std::getenv("XML_OUTPUT_FILE");
    if (path != nullptr && getpid() == owner_) Write(path);
  }

 private:
  void Write(const char* path) const {
    std::ofstream out(path);
    out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite "
           "name=\"catch2\">\n";
    for (const CaseResult& result : results_) {
      out << "<testcase name=\"" << EscapeXml(result.name) << "\" time=\"" << result.seconds
          << "\">";
      if (!result.passed) {
        out << "<failure message=\"" << EscapeXml(result.failures) << "\"/>";
      } else if (!result.skipped.empty()) {
        out << "<skipped message=\"" << EscapeXml(result.skipped) << "\"/>";
      }
      out << "</testcase>\n";
    }
    out << "</testsuite>\n</testsuites>\n";
  }

  const pid_t owner_ = getpid();
  std::chrono::steady_clock::time_point case_start_;
  std::string failures_;
  std::string skipped_;
  std::vector<CaseResult> results_;
};

CATCH_REGISTER_LISTENER(JUnitListener)

int RunTests(int argc, char** argv) {
  Catch::Session session;
  std::vector<const char*> arguments(argv, argv + argc);
  const char* filter = std::getenv("TESTBRIDGE_TEST_ONLY");
  if (filter != nullptr && argc == 1) arguments.push_back(filter);
  const int usage = session.applyCommandLine(static_cast<int>(arguments.size()), arguments.data());
  if (usage != 0) return usage;
  if (Catch::getAllTestCasesSorted(session.config()).empty()) {
    // A test program without a test can't fail, so it must not pass.
    std::fputs("there is no test case in this program\n", stderr);
    return 1;
  }
  return session.run();
}

}  // namespace
}  // namespace ringd

int main(int argc, char** argv) { return ringd::RunTests(argc, argv); }
