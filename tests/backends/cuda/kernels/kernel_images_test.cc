#include "backends/cuda/kernels/kernel_images.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

namespace ringd {
namespace {

// A fat binary's beginning, and that of each image in it, as fatbinary_section.h and the output of
// `cuobjdump` show them.
struct FatHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t bytes;  // without this header
};
struct ImageHeader {
  std::uint16_t kind;  // 1: PTX, 2: machine code
  std::uint16_t unused;
  std::uint32_t header_bytes;
  std::uint64_t bytes;  // without this header
  std::uint32_t compression[3];
  std::uint32_t architecture;  // 90: sm_90, compute_90
};
constexpr std::uint32_t kFatMagic = 0xBA55ED50;

template <typename T>
T At(std::span<const std::byte> bytes, std::size_t offset) {
  REQUIRE(offset + sizeof(T) <= bytes.size());
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// A driver knows the versions of PTX up to its own: 7.0 is of CUDA 11.0.
void CheckPtx(std::span<const std::byte> image) {
  const std::string text(reinterpret_cast<const char*>(image.data()), image.size());
  CHECK_THAT(text, Catch::Matchers::Contains("\n.version 7.0\n"));
}

std::set<std::string> Images() {
  std::set<std::string> found;
  const std::span<const std::byte> all = KernelImages();
  const auto fat = At<FatHeader>(all, 0);
  REQUIRE(fat.magic == kFatMagic);
  const std::size_t end = fat.header_bytes + fat.bytes;
  REQUIRE(end <= all.size());
  for (std::size_t at = fat.header_bytes; at < end;) {
    const auto image = At<ImageHeader>(all, at);
    REQUIRE(image.header_bytes >= sizeof image);
    REQUIRE(image.bytes > 0);
    // Drivers before CUDA 12.4 know no compressed images.
    CHECK(image.compression[0] == 0);
    if (image.kind == 1) CheckPtx(all.subspan(at + image.header_bytes, image.bytes));
    const std::string kind = image.kind == 1 ? "compute_" : "sm_";
    found.insert(kind + std::to_string(image.architecture));
    at += image.header_bytes + image.bytes;
    CHECK(at <= end);
  }
  return found;
}

TEST_CASE("KernelImages: machine code for four architectures, and PTX for all others") {
  CHECK(Images() == std::set<std::string>{"compute_80", "sm_100", "sm_120", "sm_80", "sm_90"});
}

TEST_CASE("KernelImages: lies where the driver can read it, at a multiple of 8") {
  CHECK(reinterpret_cast<std::uintptr_t>(KernelImages().data()) % 8 == 0);
}

}  // namespace
}  // namespace ringd
