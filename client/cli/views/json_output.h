// Replies as JSON, for programs.
#ifndef RINGD_CLIENT_CLI_VIEWS_JSON_OUTPUT_H_
#define RINGD_CLIENT_CLI_VIEWS_JSON_OUTPUT_H_

#include <string>

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace ringd::cli {

// The message with the field names of its .proto file; every field is there, also one that is 0 or
// empty. As proto3 has it, 64-bit integers are strings of digits, which every JSON reader keeps
// exact. Ends in a line end. `one_line`: without any other.
std::string ToJson(const google::protobuf::Message& message, bool one_line);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_VIEWS_JSON_OUTPUT_H_
