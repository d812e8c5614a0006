// A ringd that answers nothing, for tests of what lies in front of it.
#ifndef RINGD_TESTS_DAEMON_RPC_UNAVAILABLE_NODE_H_
#define RINGD_TESTS_DAEMON_RPC_UNAVAILABLE_NODE_H_

#include <functional>

#include "daemon/rpc/node_calls.h"

namespace ringd {

class UnavailableNode : public NodeCalls {
 public:
  std::function<void()> Join(const Caller&, absl::string_view, const v1::JoinRequest&,
                             Answer<v1::JoinReply> answer) override {
    Refuse(answer);
    return [] {};
  }
  void RegisterTensors(const Caller&, absl::string_view, const v1::RegisterTensorsRequest&,
                       Answer<v1::RegisterTensorsReply> answer) override {
    Refuse(answer);
  }
  void UnregisterTensors(const Caller&, absl::string_view, const v1::UnregisterTensorsRequest&,
                         Answer<v1::UnregisterTensorsReply> answer) override {
    Refuse(answer);
  }
  void DescribeMismatch(const Caller&, absl::string_view, const v1::DescribeMismatchRequest&,
                        Answer<v1::DescribeMismatchReply> answer) override {
    Refuse(answer);
  }
  void DestroyCommunicator(const Caller&, absl::string_view, const v1::DestroyCommunicatorRequest&,
                           Answer<v1::DestroyCommunicatorReply> answer) override {
    Refuse(answer);
  }
  void CreateCommunicator(const Caller&, absl::string_view, const v1::CreateCommunicatorRequest&,
                          Answer<v1::CreateCommunicatorReply> answer) override {
    Refuse(answer);
  }
  void OpenDevice(const Caller&, absl::string_view, const v1::OpenDeviceRequest&,
                  Answer<v1::OpenDeviceReply> answer) override {
    Refuse(answer);
  }
  void AgreeOnDevices(const Caller&, absl::string_view, const v1::AgreeOnDevicesRequest&,
                      Answer<v1::AgreeOnDevicesReply> answer) override {
    Refuse(answer);
  }
  void Leave(const Caller&, absl::string_view, const v1::LeaveRequest&,
             Answer<v1::LeaveReply> answer) override {
    Refuse(answer);
  }
  void GetStatus(const Caller&, Answer<v1::StatusReply> answer) override { Refuse(answer); }
  void GetGpus(const Caller&, Answer<v1::GpusReply> answer) override { Refuse(answer); }
  void Drain(const Caller&, const v1::DrainRequest&, Answer<v1::DrainReply> answer) override {
    Refuse(answer);
  }
  void ListJobs(const Caller&, const v1::ListJobsRequest&, Answer<v1::JobsReply> answer) override {
    Refuse(answer);
  }
  void ListCommunicators(const Caller&, const v1::ListCommunicatorsRequest&,
                         Answer<v1::CommunicatorsReply> answer) override {
    Refuse(answer);
  }
  void ListQueues(const Caller&, const v1::ListQueuesRequest&,
                  Answer<v1::QueuesReply> answer) override {
    Refuse(answer);
  }
  void TraceJob(const Caller&, const v1::TraceRequest&, Answer<v1::TraceReply> answer) override {
    Refuse(answer);
  }
  void ReportExit(const Caller&, const v1::ReportExitRequest&,
                  Answer<v1::ReportExitReply> answer) override {
    Refuse(answer);
  }

 private:
  template <typename Reply>
  static void Refuse(const Answer<Reply>& answer) {
    answer(absl::UnavailableError("there is no ringd"), Reply());
  }
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_RPC_UNAVAILABLE_NODE_H_
