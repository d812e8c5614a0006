// Opens the library that is named, as ringd would: prints its version, then the newer functions
// that it lacks. nccl_library_test.py gives it the real one.
#include <cstdio>

#include "backends/nccl/nccl_api.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto api = ringd::NcclApi::Open(argv[1]);
  if (!api.ok()) {
    std::fprintf(stderr, "%s\n", std::string(api.status().message()).c_str());
    return 1;
  }
  std::printf("%s", ringd::NcclVersionText((*api)->version).c_str());
#define X(name, ...) \
  if ((*api)->name == nullptr) std::printf(" without " #name);
  RINGD_NCCL_NEWER_FUNCTIONS(X)
#undef X
  std::printf("\n");
  return 0;
}
