// Several nodes in one thread, on any backend: what the contract tests run against.
#ifndef RINGD_TESTS_BACKENDS_BACKEND_WORLD_H_
#define RINGD_TESTS_BACKENDS_BACKEND_WORLD_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/loopback/loopback_hub.h"

namespace ringd {

enum class BackendKind { kLoopback, kUcx, kUcxTwoStreams };

std::string NameOf(BackendKind kind);

// N transports with one communicator each, driven in turn.
//
// Thread safety: one thread.
class BackendWorld {
 public:
  BackendWorld(BackendKind kind, int node_count, AlgorithmOptions algorithms = {});
  ~BackendWorld();

  int node_count() const { return static_cast<int>(communicators.size()); }
  Communicator& at(int node) { return *communicators[static_cast<std::size_t>(node)]; }
  Transport& transport(int node) { return *transports[static_cast<std::size_t>(node)]; }

  // Progresses all living nodes once, and collects their completions.
  void Step();
  // Steps until `done()`; false after `limit`.
  bool RunUntil(const std::function<bool()>& done,
                std::chrono::milliseconds limit = std::chrono::seconds(20));
  // Steps until every node has `count` completions.
  bool RunUntilCompleted(std::size_t count);

  // The completion of an operation on a node; null if there is none.
  const Completion* Find(int node, OperationId id) const;

  // A node's spec, for making more communicators.
  CommunicatorSpec SpecOf(int node, std::uint64_t wire_id) const;

  // The node's process is gone.
  void Kill(int node);

  std::unique_ptr<LoopbackHub> hub;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::vector<Completion>> completions;  // by node, in order
  std::vector<std::string> addresses;
  AlgorithmOptions algorithms;
};

// Stages that check what backends promise about them, and pack when first asked.
class CheckingStages final : public BufferStages {
 public:
  CheckingStages(std::size_t total_bytes, std::size_t element_bytes, int refusals = 0)
      : ready_(total_bytes),
        final_count_(total_bytes),
        element_bytes_(element_bytes),
        refusals_(refusals) {}

  bool IsReady(std::size_t begin, std::size_t end) noexcept override;
  void OnFinal(std::size_t begin, std::size_t end) noexcept override;

  // Called for a range when it is to be filled, and when it is final.
  std::function<void(std::size_t begin, std::size_t end)> pack;
  std::function<void(std::size_t begin, std::size_t end)> unpack;

  bool AllReady() const;
  bool AllFinalOnce() const;
  bool NoneFinalTwice() const;
  const std::string& violation() const { return violation_; }
  int asked() const { return asked_; }

 private:
  void CheckRange(std::size_t begin, std::size_t end) noexcept;

  std::vector<std::uint8_t> ready_;
  std::vector<std::uint8_t> final_count_;
  std::size_t element_bytes_;
  int refusals_;  // how often to say "not yet"
  int asked_ = 0;
  std::string violation_;
};

CollectiveRequest AllReduce(OperationId id, DataType type, ReduceOp op, void* buffer,
                            std::uint64_t count);
CollectiveRequest Broadcast(OperationId id, int root, DataType type, void* buffer,
                            std::uint64_t count);
CollectiveRequest Barrier(OperationId id);

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_BACKEND_WORLD_H_
