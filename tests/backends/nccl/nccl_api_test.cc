#include "backends/nccl/nccl_api.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "tests/gpu/emulator/nccl/emulated_ranks.h"

namespace ringd {
namespace {

using Catch::Contains;
using emulator::Child;
using emulator::NcclRank;

const std::string kFolder = "tests/gpu/emulator/nccl/";

// What an Open says in a process of its own, which the emulator's settings need: its message, or
// "ok" with the version.
std::string OpenApart(const std::string& file, const char* version = "") {
  int report[2];
  REQUIRE(::pipe(report) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setenv("RINGD_EMULATOR_NCCL_VERSION", version, 1);
    const auto api = NcclApi::Open(file);
    const std::string text =
        api.ok() ? "ok " + NcclVersionText((*api)->version) : api.status().ToString();
    ::_exit(::write(report[1], text.data(), text.size()) > 0 ? 0 : 1);
  }
  ::close(report[1]);
  ::waitpid(pid, nullptr, 0);
  char text[1000];
  const ssize_t length = ::read(report[0], text, sizeof text);
  ::close(report[0]);
  return std::string(text, length > 0 ? static_cast<std::size_t>(length) : 0);
}

TEST_CASE("NcclApi: opens a library by its name, without a GPU and a driver") {
  CHECK(OpenApart(kFolder + "libnccl.so.2") == "ok 2.29.7");
  CHECK(OpenApart(kFolder + "libnccl.so.2", "21901") == "ok 2.19.1");
}

TEST_CASE("NcclApi: a library that is not there is kNotFound, with the loader's own text") {
  CHECK_THAT(OpenApart("/no/such/libnccl.so.2"), Contains("NOT_FOUND") &&
                                                     Contains("/no/such/libnccl.so.2") &&
                                                     Contains("No such file or directory"));
}

TEST_CASE("NcclApi: a library that is no NCCL is named") {
  CHECK_THAT(OpenApart("libm.so.6"), Contains("FAILED_PRECONDITION") && Contains("libm.so.6") &&
                                         Contains("ncclGetVersion"));
}

TEST_CASE("NcclApi: a library that is too old is named, with what is needed") {
  CHECK_THAT(OpenApart(kFolder + "libnccl.so.2", "21805"),
             Contains("FAILED_PRECONDITION") && Contains("libnccl.so.2") && Contains("2.18.5") &&
                 Contains("2.19.1"));
}

TEST_CASE("NcclApi: a function that is missing is named") {
  CHECK_THAT(OpenApart(kFolder + "libnccl_incomplete.so"),
             Contains("FAILED_PRECONDITION") && Contains("libnccl_incomplete.so") &&
                 Contains("2.29.7") && Contains("no function ncclCommSplit"));
}

TEST_CASE("NcclApi: a version's text is NCCL's own, in both ways of counting") {
  CHECK(NcclVersionText(23203) == "2.32.3");
  CHECK(NcclVersionText(21901) == "2.19.1");
  CHECK(NcclVersionText(2804) == "2.8.4");
}

TEST_CASE("NcclStatus: keeps NCCL's texts, and says what can be done") {
  CHECK(emulator::RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          const auto status = [&rank](int result) {
            return NcclStatus(rank.nccl(), nullptr, "ncclThing", static_cast<NcclResult>(result));
          };
          CHILD_CHECK(status(kNcclSuccess).ok());
          CHILD_CHECK(absl::IsUnavailable(status(kNcclInProgress)));
          CHILD_CHECK(absl::IsDeadlineExceeded(status(kNcclTimeout)));
          CHILD_CHECK(absl::IsAborted(status(kNcclUnhandledCudaError)));
          CHILD_CHECK(absl::IsAborted(status(kNcclSystemError)));
          CHILD_CHECK(absl::IsAborted(status(kNcclRemoteError)));
          CHILD_CHECK(absl::IsInternal(status(kNcclInternalError)));
          CHILD_CHECK(absl::IsInternal(status(kNcclInvalidUsage)));
          CHILD_CHECK(absl::IsInternal(status(12345)));
          RANK_NCCL(kNcclInvalidUsage, rank.nccl().ncclGroupEnd());
          CHILD_CHECK(status(kNcclInvalidUsage).ToString() ==
                      "INTERNAL: ncclThing: invalid usage (5): ncclGroupEnd without an "
                      "ncclGroupStart");
        }) == "");
}

}  // namespace
}  // namespace ringd
