#include "tests/simulation/options.h"

#include <charconv>
#include <limits>
#include <map>

namespace ringd::simulation {
namespace {

// All of `text`, as decimal digits.
std::optional<std::uint64_t> ParseNumber(const std::string& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Options> ParseOptions(const std::vector<std::string>& arguments) {
  std::map<std::string, std::uint64_t> given;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    if (i + 1 == arguments.size()) return std::nullopt;
    const std::optional<std::uint64_t> value = ParseNumber(arguments[i + 1]);
    if (!value || !given.emplace(arguments[i], *value).second) return std::nullopt;
  }
  const auto take = [&](const char* name) -> std::optional<std::uint64_t> {
    const auto node = given.extract(name);
    if (node.empty()) return std::nullopt;
    return node.mapped();
  };
  const auto seed = take("--seed");
  const auto seeds = take("--seeds");
  const auto first = take("--first");
  const auto nodes = take("--nodes");
  if (!given.empty() || seed.has_value() == seeds.has_value()) return std::nullopt;
  if (first && !seeds) return std::nullopt;
  if (nodes && (*nodes < 2 || *nodes > 64)) return std::nullopt;
  Options options;
  options.first = seed ? *seed : first.value_or(0);
  options.count = seeds.value_or(1);
  options.nodes = static_cast<int>(nodes.value_or(0));
  options.in_detail = seed.has_value();
  const std::uint64_t seeds_left = std::numeric_limits<std::uint64_t>::max() - options.first;
  if (options.count == 0 || options.count - 1 > seeds_left) return std::nullopt;
  return options;
}

}  // namespace ringd::simulation
