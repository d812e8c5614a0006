// What all ranks must say alike about a tensor before it may be reduced.
#ifndef RINGD_DAEMON_SCHEDULE_PROTOCOL_TENSOR_META_H_
#define RINGD_DAEMON_SCHEDULE_PROTOCOL_TENSOR_META_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"
#include "proto/types/ids.h"
#include "proto/types/reduce_op.h"
#include "proto/types/tensor_place.h"

namespace ringd {

struct TensorMeta {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<std::int64_t> shape;  // of a kind with parts: of all of them together
  double prescale = 1.0;            // applied to each rank's elements before they are combined
  double postscale = 1.0;           // applied to the result
  Rank root_rank{0};                // meaningful for rooted kinds only
  // Kinds with parts only: the elements of each rank's part, by rank. The parts lie one behind the
  // other and make up the whole.
  std::vector<std::int64_t> parts = {};
  TensorPlace place = TensorPlace::kHost;

  friend bool operator==(const TensorMeta&, const TensorMeta&) = default;
};

// One rank's description of a tensor, kept with the rank so that an error can name it.
struct RankMeta {
  Rank rank;
  TensorMeta meta;

  friend bool operator==(const RankMeta&, const RankMeta&) = default;
};

// What is wrong with its dimensions, in a few words: one is negative, or they have more than 2^62
// bytes. Empty: nothing. Without elements it is a tensor, whatever the others multiply to.
std::string ProblemOfShape(const TensorMeta& meta);

// Product of the dimensions (1 for a scalar). Requirement of all below: ProblemOfShape is empty.
std::size_t ElementCount(const TensorMeta& meta) noexcept;

// Bytes of the whole tensor: 0 for a barrier.
std::size_t ByteCount(const TensorMeta& meta) noexcept;

// Bytes of a rank's source and of its destination; of a rank that has none as well.
std::size_t SourceBytes(const TensorMeta& meta, Rank rank) noexcept;
std::size_t DestinationBytes(const TensorMeta& meta, Rank rank) noexcept;

// The parts are as the kind asks: none, or such as make up the whole.
bool PartsFit(const TensorMeta& meta) noexcept;

// Everything by which two metas differ, as a key.
std::string MetaKey(const TensorMeta& meta);

// True if the two may share a bucket: they are moved and combined alike. Scales and shapes may
// differ, they are applied per tensor while packing and unpacking.
bool CanFuse(const TensorMeta& a, const TensorMeta& b) noexcept;

// True if the collective completes nowhere before every node has started it. Only such a
// collective can be learned: see "Departures" in daemon/schedule/README.md. A broadcast's root may
// be done before the others begin, for an empty tensor nothing is sent at all, and who has an empty
// part may be done before the others begin, too.
bool CanLearn(const TensorMeta& meta) noexcept;

// True if all nodes have to start it in one order, and none can take it back: what NCCL carries.
// The coordinator says when, also where it is learned.
bool NeedsLaunch(const TensorMeta& meta) noexcept;

// One sentence that names the tensor and, for each differing description, the first rank that gave
// it and its node: "tensor 'x': rank 0 on node-a submitted float64 [3, 4], rank 1 on node-b
// submitted float32 [3, 4]". Fields in which the reports agree are left out, except type and shape.
struct LocatedRankMeta {
  RankMeta report;
  std::string node_name;
};
std::string DescribeMismatch(const std::string& tensor_name,
                             const std::vector<LocatedRankMeta>& reports);
// The same behind the colon, where it is about no tensor: " rank 0 on node-a submitted ...". Kinds
// are named even where the reports agree.
std::string DescribeDifferences(const std::vector<LocatedRankMeta>& reports, bool with_kinds);

// What to do if some ranks take the host path and others NCCL.
inline constexpr char kHostPathRemedy[] =
    "for all ranks to take the host path, set device_launch = \"host\" in every ringd.toml, or "
    "RINGD_HOST_PATH=1 for every rank";

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PROTOCOL_TENSOR_META_H_
