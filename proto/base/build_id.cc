#include "proto/base/build_id.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ringd {
namespace {

constexpr std::size_t kBytesShown = 6;

// Name and description of a note are padded to this (elf(5)).
constexpr std::size_t Padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

// Of the notes that the program itself was mapped with; empty: none.
absl::string_view FindBuildId(absl::string_view notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof(header));
    const std::size_t name_bytes = Padded(header.n_namesz);
    const std::size_t bytes = sizeof(header) + name_bytes + Padded(header.n_descsz);
    if (bytes > notes.size()) return {};
    const absl::string_view name = notes.substr(sizeof(header), header.n_namesz);
    if (header.n_type == NT_GNU_BUILD_ID && name == absl::string_view("GNU\0", 4)) {
      return notes.substr(sizeof(header) + name_bytes, header.n_descsz);
    }
    notes.remove_prefix(bytes);
  }
  return {};
}

// The first object is the program; 1 ends the walk.
int ReadFirst(dl_phdr_info* object, std::size_t /*size*/, void* found) {
  for (const auto& segment : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    if (segment.p_type != PT_NOTE) continue;
    const absl::string_view id = FindBuildId(absl::string_view(
        reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz));
    if (!id.empty()) *static_cast<absl::string_view*>(found) = id;
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  absl::string_view id;
  ::dl_iterate_phdr(ReadFirst, &id);
  return id.empty() ? "unknown" : absl::BytesToHexString(id.substr(0, kBytesShown));
}

std::string VersionAndBuild(const char* version) {
  return absl::StrCat(version, " (build ", BuildId(), ")");
}

}  // namespace ringd
