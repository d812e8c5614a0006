#include "daemon/peers/job_proof.h"

#include <cstdint>

#include "proto/door/hmac.h"

namespace ringd {
namespace {

void AppendField(absl::string_view field, std::string& out) {
  const auto length = static_cast<std::uint32_t>(field.size());
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(length >> shift));
  }
  out.append(field.data(), field.size());
}

}  // namespace

std::string ComputeJobProof(absl::string_view secret, absl::string_view nonce,
                            absl::string_view job_id, absl::string_view node_name) {
  std::string input;
  input.reserve(nonce.size() + job_id.size() + node_name.size() + 12);
  AppendField(nonce, input);
  AppendField(job_id, input);
  AppendField(node_name, input);
  return std::string(AsText(HmacSha256(secret, input)));
}

}  // namespace ringd
