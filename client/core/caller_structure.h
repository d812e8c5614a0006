// The structures of ringd.h as a program passes them that was built with another version of it.
#ifndef RINGD_CLIENT_CORE_CALLER_STRUCTURE_H_
#define RINGD_CLIENT_CORE_CALLER_STRUCTURE_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/ringd.h"

namespace ringd::client {

// Structures only ever grow, at their end. What an older program's lacks counts as 0; what a newer
// one's has beyond is ignored in what the library reads, and set to 0 in what it writes.
//
// A structure's name, and its size in the first version that had it.
template <typename T>
struct StructureTraits;

template <>
struct StructureTraits<ringd_options> {
  static constexpr char kName[] = "ringd_options";
  static constexpr std::size_t kOldestBytes = offsetof(ringd_options, weight);
};
template <>
struct StructureTraits<ringd_place> {
  static constexpr char kName[] = "ringd_place";
  static constexpr std::size_t kOldestBytes = 144;
};
template <>
struct StructureTraits<ringd_tensor> {
  static constexpr char kName[] = "ringd_tensor";
  static constexpr std::size_t kOldestBytes = 64;
};

template <>
struct StructureTraits<ringd_communicator_options> {
  static constexpr char kName[] = "ringd_communicator_options";
  static constexpr std::size_t kOldestBytes = 40;
};
template <>
struct StructureTraits<ringd_communicator_place> {
  static constexpr char kName[] = "ringd_communicator_place";
  static constexpr std::size_t kOldestBytes = 24;
};

template <>
struct StructureTraits<ringd_collective> {
  static constexpr char kName[] = "ringd_collective";
  static constexpr std::size_t kOldestBytes = 48;
};

template <>
struct StructureTraits<ringd_device_options> {
  static constexpr char kName[] = "ringd_device_options";
  static constexpr std::size_t kOldestBytes = 32;
};

// Padding at the end would become the next version's field, with garbage in it.
#define RINGD_HAS_NO_TAIL(Type, last) \
  static_assert(offsetof(Type, last) + sizeof(Type::last) == sizeof(Type))
RINGD_HAS_NO_TAIL(ringd_options, is_interrupted);
RINGD_HAS_NO_TAIL(ringd_place, daemon_version);
RINGD_HAS_NO_TAIL(ringd_tensor, unused);
RINGD_HAS_NO_TAIL(ringd_communicator_options, unused2);
RINGD_HAS_NO_TAIL(ringd_communicator_place, node_index);
#undef RINGD_HAS_NO_TAIL

// No version's structure will be longer: the number was never set.
inline constexpr std::size_t kMaxStructureBytes = 4096;

// kInvalidArgument with both sizes if no version's structure is so long.
template <typename T>
absl::Status CheckStructureBytes(std::size_t given_bytes) {
  using Traits = StructureTraits<T>;
  static_assert(Traits::kOldestBytes <= sizeof(T));
  if (given_bytes >= Traits::kOldestBytes && given_bytes <= kMaxStructureBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Traits::kName, ".struct_size is ", given_bytes, ": it must be sizeof(",
                   Traits::kName, "), which is ", sizeof(T),
                   " in this version and was never less than ", Traits::kOldestBytes));
}

// `given`, of `given_bytes`, as this version's structure. Requirement: the size has been checked.
template <typename T>
T FromCaller(const void* given, std::size_t given_bytes) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T structure{};
  std::memcpy(&structure, given, std::min(given_bytes, sizeof(T)));
  return structure;
}

// Writes all of `structure` that the caller's, of `given_bytes`, has room for, but for its
// struct_size, which stays. Requirement: the size has been checked.
template <typename T>
void ToCaller(const T& structure, void* given, std::size_t given_bytes) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
  constexpr std::size_t kKept = sizeof(structure.struct_size);
  auto* const bytes = static_cast<std::byte*>(given);
  const std::size_t known = std::min(given_bytes, sizeof(T));
  std::memcpy(bytes + kKept, reinterpret_cast<const std::byte*>(&structure) + kKept, known - kKept);
  std::memset(bytes + known, 0, given_bytes - known);
}

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_CALLER_STRUCTURE_H_
