// The sources in foreign/ belong to these releases; each defines what the other objects of its
// static library expect.
#include <google/protobuf/stubs/common.h>

#include "absl/base/config.h"

static_assert(ABSL_LTS_RELEASE_VERSION == 20220623, "third_party/static/README.md");
static_assert(GOOGLE_PROTOBUF_VERSION == 3021012, "third_party/static/README.md");
