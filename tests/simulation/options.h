// What the simulation is asked to run, from its command line.
#ifndef RINGD_TESTS_SIMULATION_OPTIONS_H_
#define RINGD_TESTS_SIMULATION_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ringd::simulation {

inline constexpr const char* kUsage =
    "--seed N [--nodes 2..64] | --seeds COUNT [--first N] [--nodes 2..64]";

struct Options {
  std::uint64_t first = 0;  // seed
  std::uint64_t count = 0;
  int nodes = 0;  // 0: as the seed has it
  bool in_detail = false;
};

// Nothing if the arguments, without the program's name, are not as kUsage has them.
std::optional<Options> ParseOptions(const std::vector<std::string>& arguments);

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_OPTIONS_H_
