#include "daemon/gpu/gpu_findings.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringd {
namespace {

const std::string kOpening = R"({"step":"opening x","library":{"file":"x"}})";
const std::string kAsking =
    R"({"step":"asking about GPU 1","library":{"version":"13.0"},"gpus":[{"name":"A"}]})";
const std::string kDone = R"({"library":{"version":"13.0"},"gpus":[{"name":"A"},{"name":"A"}]})";

ProbeResult Printed(const std::string& output, absl::Status end = absl::OkStatus()) {
  return {"libx.so", output, std::move(end), ""};
}

TEST_CASE("ReadFindings: the last line counts") {
  const v1::GpuFindings found = ReadFindings(Printed(kOpening + "\n" + kAsking + "\n" + kDone));
  CHECK(found.gpus_size() == 2);
  CHECK(found.library().version() == "13.0");
  CHECK(found.library().file() == "libx.so");
  CHECK(found.library().problem().empty());
}

TEST_CASE("ReadFindings: after a crash, what was found before, the step, and the last words") {
  ProbeResult result = Printed(kOpening + "\n" + kAsking + "\n" + kDone.substr(0, 40),
                               absl::AbortedError("was ended by signal 11 (SIGSEGV)"));
  result.last_error = "assertion failed";
  const v1::GpuFindings found = ReadFindings(result);
  CHECK(found.gpus_size() == 1);
  CHECK(found.library().problem() ==
        "the probe was ended by signal 11 (SIGSEGV), while asking about GPU 1: assertion failed");
  CHECK(found.step().empty());
}

TEST_CASE("ReadFindings: output that is none is no finding") {
  for (const std::string output : {"", "\n\n", "hello", "{\"gpus\":7}", "[]", "{\"unknown\":1}"}) {
    INFO(output);
    const v1::GpuFindings found = ReadFindings(Printed(output));
    CHECK(found.gpus().empty());
    CHECK(found.library().file() == "libx.so");
  }
  CHECK(ReadFindings(Printed("")).library().problem() == "the probe ended too early");
  CHECK(ReadFindings(Printed(kOpening)).library().problem() ==
        "the probe ended too early, while opening x");
}

TEST_CASE("MergeFindings: what is not there and what has failed are told apart") {
  const v1::GpuFindings done = ReadFindings(Printed(kDone));
  const v1::GpuFindings nothing;
  CHECK(MergeFindings(done, absl::OkStatus(), nothing).state() == "found");
  CHECK(MergeFindings(nothing, absl::OkStatus(), done).state() == "none");
  CHECK(MergeFindings(nothing, absl::AbortedError(""), done).state() == "failed");
  // GPUs that were asked about before it crashed stay.
  const v1::GpusReply partly = MergeFindings(done, absl::AbortedError(""), nothing);
  CHECK(partly.state() == "failed");
  CHECK(partly.gpus_size() == 2);
}

TEST_CASE("SummaryOf: a line for each state") {
  v1::GpusReply reply;
  reply.set_state("looking");
  CHECK(SummaryOf(reply) == "being looked for");
  reply.set_state("none");
  reply.mutable_cuda()->set_problem("no libcuda.so.1");
  CHECK(SummaryOf(reply) == "none: no libcuda.so.1");
  reply.set_state("failed");
  CHECK(SummaryOf(reply) == "not known: no libcuda.so.1");
  v1::GpuFindings nccl;
  nccl.mutable_library()->set_version("2.32.3");
  const v1::GpuFindings cuda = ReadFindings(Printed(kDone));
  CHECK(SummaryOf(MergeFindings(cuda, absl::OkStatus(), nccl)) == "2 (A), CUDA 13.0, NCCL 2.32.3");
  nccl.mutable_library()->set_problem("too old");
  CHECK(SummaryOf(MergeFindings(cuda, absl::OkStatus(), nccl)) ==
        "2 (A), CUDA 13.0, no NCCL: too old");
}

}  // namespace
}  // namespace ringd
