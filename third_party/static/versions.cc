// The sources in foreign/ belong to these releases; each defines what the static library of the other
// objects expects.
#include "absl/base/config.h"
#include "google/protobuf/port_def.inc"

static_assert(ABSL_LTS_RELEASE_VERSION == 20220623, "third_party/static/README.md");
static_assert(PROTOBUF_VERSION == 3021012, "third_party/static/README.md");

#include "google/protobuf/port_undef.inc"
