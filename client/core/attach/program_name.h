// What a trainer's program is called in messages: "train.py", where the process is a Python.
#ifndef RINGD_CLIENT_CORE_ATTACH_PROGRAM_NAME_H_
#define RINGD_CLIENT_CORE_ATTACH_PROGRAM_NAME_H_

#include <span>
#include <string>

namespace ringd::client {

// For a Python interpreter the base name of its script, the name of its module (-m), or the
// interpreter's own (-c); for other programs their own base name. Nothing else of the command line:
// arguments may be secrets. At most 64 printable ASCII characters; others become '?'. Empty without
// arguments.
std::string ProgramName(std::span<const std::string> arguments);

// This process's, by its command line.
std::string OwnProgramName();

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_PROGRAM_NAME_H_
