#include "client/cli/views/json_output.h"

#include <google/protobuf/util/json_util.h>

namespace ringd::cli {

std::string ToJson(const google::protobuf::Message& message, bool one_line) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = !one_line;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only for messages of types that ours don't hold (Any without its type).
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) json = "{}";
  if (json.empty() || json.back() != '\n') json += '\n';
  return json;
}

}  // namespace ringd::cli
