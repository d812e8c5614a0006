#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/gpu/emulator/cuda/device_memory.h"

namespace ringd::emulator {
namespace {

// Behind the memory in its file: what an importer has to know.
struct Footer {
  std::uint64_t magic;
  std::uint64_t bytes;
  std::int32_t device;
};
constexpr std::uint64_t kFooterMagic = 0x72696e67644d454d;
constexpr std::size_t kPage = 4096;

char* MapAlias(int descriptor, std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

// New device memory holds whatever was there before. The first and last page of each granule are
// enough to show who counts on zeroes, and leave the rest untouched.
void Soil(char* memory, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kGranularity) {
    std::memset(memory + at, 0xC5, kPage);
    std::memset(memory + at + kGranularity - kPage, 0xC5, kPage);
  }
}

}  // namespace

std::shared_ptr<Allocation> Allocation::Create(Machine& machine, int device, std::size_t bytes,
                                               bool exportable) {
  if (bytes > SIZE_MAX - kGranularity) return nullptr;
  const std::size_t whole = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  if (!machine.TakeMemory(device, whole)) return nullptr;
  std::shared_ptr<Allocation> made(new Allocation);
  made->machine_ = &machine;
  made->device_ = device;
  made->bytes_ = whole;
  made->exportable_ = exportable;
  made->descriptor_.Reset(::memfd_create("ringd-emulated-gpu", MFD_CLOEXEC));
  if (!made->descriptor_.valid() ||
      ::ftruncate(made->descriptor(), static_cast<off_t>(whole + kPage)) != 0) {
    return nullptr;
  }
  const Footer footer{kFooterMagic, whole, device};
  if (::pwrite(made->descriptor(), &footer, sizeof footer, static_cast<off_t>(whole)) !=
      static_cast<ssize_t>(sizeof footer)) {
    return nullptr;
  }
  made->alias_ = MapAlias(made->descriptor(), whole);
  if (made->alias_ == nullptr) return nullptr;
  Soil(made->alias_, whole);
  return made;
}

std::shared_ptr<Allocation> Allocation::Import(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size <= static_cast<off_t>(kPage)) {
    return nullptr;
  }
  Footer footer{};
  const off_t at = status.st_size - static_cast<off_t>(kPage);
  if (::pread(descriptor, &footer, sizeof footer, at) != static_cast<ssize_t>(sizeof footer) ||
      footer.magic != kFooterMagic || footer.bytes != static_cast<std::uint64_t>(at)) {
    return nullptr;
  }
  std::shared_ptr<Allocation> imported(new Allocation);
  imported->descriptor_.Reset(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  imported->device_ = footer.device;
  imported->bytes_ = footer.bytes;
  imported->exportable_ = true;
  imported->alias_ = MapAlias(imported->descriptor(), footer.bytes);
  return imported->alias_ == nullptr ? nullptr : imported;
}

std::shared_ptr<Allocation> Allocation::OfHost(void* memory, std::size_t bytes, bool owned) {
  std::shared_ptr<Allocation> host(new Allocation);
  host->alias_ = static_cast<char*>(memory);
  host->bytes_ = bytes;
  host->unmaps_alias_ = owned;
  return host;
}

Allocation::~Allocation() {
  if (unmaps_alias_ && alias_ != nullptr) ::munmap(alias_, bytes_);
  if (machine_ != nullptr) machine_->GiveMemory(device_, bytes_);
}

}  // namespace ringd::emulator
