// Quantities as people read them.
#ifndef RINGD_CLIENT_CLI_VIEWS_HUMAN_UNITS_H_
#define RINGD_CLIENT_CLI_VIEWS_HUMAN_UNITS_H_

#include <cstdint>
#include <string>

namespace ringd::cli {

// "0 B", "1023 B", "1.5 KiB", "118 MiB": three digits, binary units.
std::string HumanBytes(double bytes);

// HumanBytes and "/s".
std::string HumanRate(double bytes_per_second);

// "12 ms", "3.4 s", "5 min 7 s", "2 h 3 min", "4 d 1 h". Negative counts as 0.
std::string HumanDuration(double seconds);

// "1,234,567".
std::string HumanCount(std::uint64_t count);

// "0 %", "4.2 %", "37 %", of a share from 0 to 1.
std::string HumanShare(double share);

// "0", "0.42", "17": at most three digits, for averages and rates.
std::string HumanNumber(double number);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_VIEWS_HUMAN_UNITS_H_
