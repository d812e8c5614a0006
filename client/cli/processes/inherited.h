// What ringctl has from whoever started it, made fit for a program that starts others.
#ifndef RINGD_CLIENT_CLI_PROCESSES_INHERITED_H_
#define RINGD_CLIENT_CLI_PROCESSES_INHERITED_H_

#include <sys/resource.h>

namespace ringd::cli {

// Opens /dev/null where standard input, output or error is closed: what is opened next would take
// its number, and be taken for it. Before anything is opened.
void FillStandardStreams() noexcept;

// Raises the limit of descriptors as far as this user may; a run needs up to four for each rank.
// The result is how it was, for the programs that are started (SpawnOptions): some look at every
// number up to it.
rlimit RaiseDescriptorLimit() noexcept;

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_PROCESSES_INHERITED_H_
