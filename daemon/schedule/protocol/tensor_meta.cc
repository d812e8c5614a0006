#include "daemon/schedule/protocol/tensor_meta.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/operations/operation_traits.h"

namespace ringd {
namespace {

constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 62;

// Which fields a description has to mention because the reports disagree on them.
struct Differences {
  bool kind = false;
  bool op = false;
  bool prescale = false;
  bool postscale = false;
  bool root_rank = false;
  bool parts = false;
  bool place = false;
};

Differences FindDifferences(const std::vector<LocatedRankMeta>& reports) {
  Differences found;
  const TensorMeta& first = reports.front().report.meta;
  for (const LocatedRankMeta& located : reports) {
    const TensorMeta& meta = located.report.meta;
    found.kind |= meta.kind != first.kind;
    found.op |= meta.op != first.op;
    found.prescale |= meta.prescale != first.prescale;
    found.postscale |= meta.postscale != first.postscale;
    found.root_rank |= meta.root_rank != first.root_rank;
    found.parts |= meta.parts != first.parts;
    found.place |= meta.place != first.place;
  }
  return found;
}

bool HavePlace(const std::vector<LocatedRankMeta>& reports, TensorPlace place) noexcept {
  return std::any_of(reports.begin(), reports.end(), [place](const LocatedRankMeta& located) {
    return located.report.meta.place == place;
  });
}

std::string DescribeParts(std::span<const std::int64_t> parts) {
  // Enough to see in what two differ, mostly; there are as many as ranks.
  constexpr std::size_t kMost = 16;
  const bool all = parts.size() <= kMost;
  return absl::StrCat(absl::StrJoin(all ? parts : parts.first(kMost), ", "), all ? "" : ", ...");
}

const char* DescribePlace(TensorPlace place) noexcept {
  switch (place) {
    case TensorPlace::kHost:
      return " in host memory";
    case TensorPlace::kDevice:
      return " in device memory";
    case TensorPlace::kDeviceByHost:
      return " in device memory, by the host path";
  }
  return "";
}

std::string Describe(const TensorMeta& meta, const Differences& differences) {
  std::string text;
  if (differences.kind) absl::StrAppend(&text, Name(meta.kind), " ");
  if (differences.op) absl::StrAppend(&text, Name(meta.op), " ");
  absl::StrAppend(&text, Name(meta.dtype), " [", absl::StrJoin(meta.shape, ", "), "]");
  if (differences.prescale) absl::StrAppend(&text, " prescale ", meta.prescale);
  if (differences.postscale) absl::StrAppend(&text, " postscale ", meta.postscale);
  if (differences.root_rank) absl::StrAppend(&text, " root rank ", meta.root_rank.value());
  if (differences.parts) absl::StrAppend(&text, " in parts of ", DescribeParts(meta.parts));
  if (differences.place) absl::StrAppend(&text, DescribePlace(meta.place));
  return text;
}

std::size_t BytesOf(const TensorMeta& meta, Extent extent, Rank rank) noexcept {
  if (extent == Extent::kAll) return ByteCount(meta);
  return static_cast<std::size_t>(meta.parts[static_cast<std::size_t>(rank.value())]) *
         SizeOf(meta.dtype);
}

}  // namespace

std::string ProblemOfShape(const TensorMeta& meta) {
  std::uint64_t bytes = SizeOf(meta.dtype);
  bool empty = false;
  bool overflows = false;
  for (const std::int64_t extent : meta.shape) {
    if (extent < 0) return absl::StrCat("a dimension of ", extent);
    empty = empty || extent == 0;
    overflows = overflows ||
                __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes) ||
                bytes > kMaxTensorBytes;
  }
  return overflows && !empty ? "more than 2^62 bytes" : "";
}

std::size_t ElementCount(const TensorMeta& meta) noexcept {
  std::size_t count = 1;
  for (std::int64_t dimension : meta.shape) count *= static_cast<std::size_t>(dimension);
  return count;
}

std::size_t ByteCount(const TensorMeta& meta) noexcept {
  return TraitsOf(meta.kind).moves_data ? ElementCount(meta) * SizeOf(meta.dtype) : 0;
}

std::size_t SourceBytes(const TensorMeta& meta, Rank rank) noexcept {
  return BytesOf(meta, TraitsOf(meta.kind).input, rank);
}

std::size_t DestinationBytes(const TensorMeta& meta, Rank rank) noexcept {
  return BytesOf(meta, TraitsOf(meta.kind).output, rank);
}

bool PartsFit(const TensorMeta& meta) noexcept {
  if (!TraitsOf(meta.kind).HasParts()) return meta.parts.empty();
  std::size_t left = ElementCount(meta);
  for (const std::int64_t part : meta.parts) {
    if (part < 0 || static_cast<std::size_t>(part) > left) return false;
    left -= static_cast<std::size_t>(part);
  }
  return left == 0;
}

std::string MetaKey(const TensorMeta& meta) {
  std::string key = absl::StrCat(static_cast<int>(meta.kind), ",", static_cast<int>(meta.dtype),
                                 ",", static_cast<int>(meta.op), ",", meta.root_rank.value(), ",");
  key.append(reinterpret_cast<const char*>(&meta.prescale), sizeof(meta.prescale));
  key.append(reinterpret_cast<const char*>(&meta.postscale), sizeof(meta.postscale));
  for (const std::int64_t extent : meta.shape) absl::StrAppend(&key, ",", extent);
  if (!meta.parts.empty()) absl::StrAppend(&key, ";", absl::StrJoin(meta.parts, ","));
  if (meta.place != TensorPlace::kHost) absl::StrAppend(&key, ";", Name(meta.place));
  return key;
}

bool CanFuse(const TensorMeta& a, const TensorMeta& b) noexcept {
  const OperationTraits& traits = TraitsOf(a.kind);
  if (!traits.moves_data || a.kind != b.kind || a.dtype != b.dtype || a.place != b.place) {
    return false;
  }
  return (!traits.rooted || a.root_rank == b.root_rank) && (!traits.combines || a.op == b.op);
}

bool CanLearn(const TensorMeta& meta) noexcept {
  const OperationTraits& traits = TraitsOf(meta.kind);
  const bool all_have_parts = std::none_of(meta.parts.begin(), meta.parts.end(),
                                           [](std::int64_t part) { return part == 0; });
  return traits.completes_together && all_have_parts && (!traits.moves_data || ByteCount(meta) > 0);
}

bool NeedsLaunch(const TensorMeta& meta) noexcept { return meta.place == TensorPlace::kDevice; }

std::string DescribeDifferences(const std::vector<LocatedRankMeta>& reports, bool with_kinds) {
  std::vector<LocatedRankMeta> sorted = reports;
  std::sort(sorted.begin(), sorted.end(), [](const LocatedRankMeta& a, const LocatedRankMeta& b) {
    return a.report.rank < b.report.rank;
  });
  Differences differences = FindDifferences(sorted);
  differences.kind = differences.kind || with_kinds;
  std::vector<std::string> seen;
  std::string text;
  for (const LocatedRankMeta& located : sorted) {
    std::string description = Describe(located.report.meta, differences);
    if (std::find(seen.begin(), seen.end(), description) != seen.end()) continue;
    absl::StrAppend(&text, seen.empty() ? " " : ", ", "rank ", located.report.rank.value(), " on ",
                    located.node_name, " submitted ", description);
    seen.push_back(std::move(description));
  }
  if (HavePlace(reports, TensorPlace::kDevice) && HavePlace(reports, TensorPlace::kDeviceByHost)) {
    absl::StrAppend(&text, "; ", kHostPathRemedy);
  }
  return text;
}

std::string DescribeMismatch(const std::string& tensor_name,
                             const std::vector<LocatedRankMeta>& reports) {
  return absl::StrCat("tensor '", tensor_name,
                      "':", DescribeDifferences(reports, /*with_kinds=*/false));
}

}  // namespace ringd
