#include "backends/cuda/device_slab.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "tests/backends/cuda/opened_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::RunEmulated;

constexpr std::size_t kGranule = std::size_t{2} << 20;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST_CASE("DeviceSlab: whole granules, all of them zero") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto context = OpenGpu(child);
          {
            // What a later slab must not show.
            const auto dirty = CHILD_VALUE(DeviceSlab::Create(context, 3 * kGranule, "s"));
            std::memset(child.emulator().alias(dirty.address(), dirty.bytes()), 7, dirty.bytes());
          }
          const auto slab = CHILD_VALUE(DeviceSlab::Create(context, kGranule, "s"));
          CHILD_CHECK(slab.bytes() == 2 * kGranule);
          CHILD_CHECK(child.Read(slab.address()) == kTimelineMagic);
          for (std::size_t at = 8; at < slab.bytes(); at += 8) {
            CHILD_CHECK(child.Read(slab.address() + at) == 0);
          }
        }) == "");
}

TEST_CASE("DeviceSlab: an imported one is the same memory, and outlives the exported one") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto context = OpenGpu(child);
          auto made =
              std::make_unique<DeviceSlab>(CHILD_VALUE(DeviceSlab::Create(context, kGranule, "s")));
          auto descriptor = CHILD_VALUE(made->Export());
          const ImportedSlab imported = CHILD_VALUE(
              ImportedSlab::Import(context, std::move(descriptor), made->bytes(), context->uuid()));
          CHILD_CHECK(imported.address() != made->address());
          std::memset(child.emulator().alias(made->address() + kTimelineBytes, 64), 5, 64);
          made.reset();
          CHILD_CHECK(child.Read(imported.address() + kTimelineBytes) == 0x0505050505050505);
        }) == "");
}

TEST_CASE("DeviceSlab: memory comes back, also of slabs that were moved") {
  CHECK(RunEmulated({{"MEMORY_MIB", "8"}}, [](const Child& child) {
          const auto context = OpenGpu(child);
          for (int i = 0; i < 10; ++i) {
            DeviceSlab first = CHILD_VALUE(DeviceSlab::Create(context, 2 * kGranule, "s"));
            DeviceSlab second = std::move(first);
            const std::uint32_t slots[] = {DoneSlot(0)};
            CHILD_STATUS(second.timeline().Release(slots));
            first = std::move(second);
            CHILD_CHECK(first.bytes() == 3 * kGranule);
          }
        }) == "");
}

TEST_CASE("DeviceSlab: out of memory says how much, where, and which setting") {
  CHECK(RunEmulated({{"MEMORY_MIB", "8"}}, [](const Child& child) {
          const auto context = OpenGpu(child);
          const DeviceSlab first = CHILD_VALUE(DeviceSlab::Create(context, kGranule, "s"));
          const absl::Status status =
              DeviceSlab::Create(context, 3 * kGranule, "gpu_slab_bytes").status();
          constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
          CHILD_REFUSED(kExhausted, "8 MiB", status);
          CHILD_REFUSED(kExhausted, "4 MiB are free", status);
          CHILD_REFUSED(kExhausted, context->uuid(), status);
          CHILD_REFUSED(kExhausted, "`gpu_slab_bytes`", status);
          CHILD_REFUSED(kInvalid, "8 MiB",
                        DeviceSlab::Create(context, std::size_t{1} << 40, "s").status());
          CHILD_REFUSED(kInvalid, "0 bytes", DeviceSlab::Create(context, 0, "s").status());
        }) == "");
}

TEST_CASE("ImportedSlab: what is no slab, or another GPU's, is refused") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          const auto context = OpenGpu(child);
          const DeviceSlab slab = CHILD_VALUE(DeviceSlab::Create(context, kGranule, "s"));
          const auto import = [&](UniqueFd descriptor, std::size_t bytes) {
            return ImportedSlab::Import(context, std::move(descriptor), bytes, context->uuid())
                .status();
          };
          CHILD_REFUSED(
              kInvalid, "another-gpu",
              ImportedSlab::Import(context, CHILD_VALUE(slab.Export()), slab.bytes(), "another-gpu")
                  .status());
          CHILD_REFUSED(kInvalid, "the descriptor is none",
                        import(CHILD_VALUE(slab.Export()), slab.bytes() + kGranule));
          CHILD_REFUSED(kInvalid, "no slab has",
                        import(CHILD_VALUE(slab.Export()), slab.bytes() - 1));
          CHILD_REFUSED(kInvalid, "no slab has", import(CHILD_VALUE(slab.Export()), 0));
          CHILD_REFUSED(kInvalid, "the descriptor is none",
                        import(UniqueFd(::memfd_create("no slab", MFD_CLOEXEC)), slab.bytes()));
          CHILD_REFUSED(kInvalid, "the descriptor is none", import(UniqueFd(), slab.bytes()));
        }) == "");
}

TEST_CASE("ImportedSlab: memory without a timeline of this version is refused") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto context = OpenGpu(child);
          const DeviceSlab slab = CHILD_VALUE(DeviceSlab::Create(context, kGranule, "s"));
          std::memset(child.emulator().alias(slab.address(), 1), 2, 1);
          CHILD_REFUSED(kInvalid, "version",
                        ImportedSlab::Import(context, CHILD_VALUE(slab.Export()), slab.bytes(),
                                             context->uuid())
                            .status());
        }) == "");
}

TEST_CASE("ImportedSlab: an offset is that of memory inside, behind the timeline") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto context = OpenGpu(child);
          const DeviceSlab made = CHILD_VALUE(DeviceSlab::Create(context, kGranule, "s"));
          const ImportedSlab slab = CHILD_VALUE(ImportedSlab::Import(
              context, CHILD_VALUE(made.Export()), made.bytes(), context->uuid()));
          const DeviceAddress first = slab.address() + kTimelineBytes;
          const DeviceAddress end = slab.address() + slab.bytes();
          CHILD_CHECK(CHILD_VALUE(slab.OffsetOf(first, 4)) == kTimelineBytes);
          CHILD_CHECK(CHILD_VALUE(slab.OffsetOf(end - 4, 4)) == slab.bytes() - 4);
          CHILD_REFUSED(kInvalid, "not in the slab", slab.OffsetOf(first - 4, 8).status());
          CHILD_REFUSED(kInvalid, "not in the slab", slab.OffsetOf(end - 4, 8).status());
          CHILD_REFUSED(kInvalid, "not in the slab", slab.OffsetOf(slab.address() - 8, 4).status());
          CHILD_REFUSED(kInvalid, "not in the slab", slab.OffsetOf(first, SIZE_MAX).status());
          CHILD_REFUSED(kInvalid, "not in the slab", slab.OffsetOf(0, 4).status());
        }) == "");
}

}  // namespace
}  // namespace ringd
