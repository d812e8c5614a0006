// Several nodes in one thread, on any backend: what the contract tests run against.
#ifndef RINGD_TESTS_BACKENDS_BACKEND_WORLD_H_
#define RINGD_TESTS_BACKENDS_BACKEND_WORLD_H_

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/loopback/loopback_hub.h"
#include "proto/reduce/reduce.h"

namespace ringd {

enum class BackendKind { kLoopback, kUcx, kUcxTwoStreams, kUcxSharedMemory, kTcp, kTcpTwoStreams };

std::string NameOf(BackendKind kind);

// A transport of this kind, which is not kLoopback: `options` but for the number of streams.
std::unique_ptr<Transport> MakeTransport(BackendKind kind, TransportOptions options);

// N transports with one communicator each, driven in turn.
//
// Thread safety: one thread.
class BackendWorld {
 public:
  // `options`: how the transports are set up, but for the number of streams.
  BackendWorld(BackendKind kind, int node_count, AlgorithmOptions algorithms = {},
               TransportOptions options = {});
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

// A node's data apart from the collective's buffer, as a daemon's ranks have it: gives and takes it
// as an accessor does, and checks what backends promise about them.
class CheckingAccessor final : public BufferAccessor {
 public:
  enum class Way {
    kInPlace,  // the result replaces the input; both are sent from where they lie
    kPacked,   // what is sent goes through the buffer
  };

  // `data` is the input, and becomes the result; `refusals`: how often to say "not ready".
  CheckingAccessor(Way way, std::vector<std::byte> data, Scaling scaling = {}, int refusals = 0)
      : way_(way),
        scaling_(scaling),
        refusals_(refusals),
        data_(std::move(data)),
        taken_(data_.size()),
        handed_over_(data_.size()) {}

  // Puts itself into a request whose buffer is set.
  void Serve(CollectiveRequest& request);

  const std::byte* Input(std::size_t begin, std::size_t end) noexcept override;
  bool AddInput(std::size_t begin, std::size_t end, const std::byte* partial) noexcept override;
  const std::byte* AddLastInput(std::size_t begin, std::size_t end,
                                const std::byte* partial) noexcept override;
  void OnCombined(std::size_t begin, std::size_t end) noexcept override;
  const std::byte* OnResult(std::size_t begin, std::size_t end, const std::byte* result,
                            bool keep) noexcept override;

  const std::vector<std::byte>& data() const { return data_; }
  bool AllTakenOnce() const;
  bool NoneTaken() const;
  bool AllHandedOverOnce() const;
  bool NoneHandedOver() const;
  const std::string& violation() const { return violation_; }
  int asked() const { return asked_; }

 private:
  std::byte* Buffer(std::size_t at) const noexcept { return request_.buffer + at; }
  std::size_t Elements(std::size_t begin, std::size_t end) const noexcept;
  bool Take(std::size_t begin, std::size_t end) noexcept;
  void HandOver(std::size_t begin, std::size_t end) noexcept;
  void CheckRange(std::size_t begin, std::size_t end) noexcept;

  const Way way_;
  const Scaling scaling_;
  int refusals_;
  std::vector<std::byte> data_;
  CollectiveRequest request_;
  std::vector<std::uint8_t> taken_;        // by byte: how often
  std::vector<std::uint8_t> handed_over_;  // by byte: how often
  int asked_ = 0;
  std::string violation_;
};

// The bytes of some values, and back.
template <typename T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <typename T>
std::vector<T> ValuesOf(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

CollectiveRequest AllReduce(OperationId id, DataType type, ReduceOp op, void* buffer,
                            std::uint64_t count);
CollectiveRequest Broadcast(OperationId id, int root, DataType type, void* buffer,
                            std::uint64_t count);
CollectiveRequest Barrier(OperationId id);

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_BACKEND_WORLD_H_
