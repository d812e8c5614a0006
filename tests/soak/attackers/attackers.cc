// The list of attacks, and the program that makes one: soak_attacker NAME SECONDS SEED NICE
//
// ringd's socket and the place in the job, for those who join one, come from the environment as
// every trainer's do.
#include <sys/resource.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/soak/attackers/attacker.h"

namespace ringd::soak {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Attacker> (*make)();
};

constexpr std::array kEntries{
    Entry{"communicator-hoarder", MakeCommunicatorHoarder},
    Entry{"connect-flood", MakeConnectFlood},
    Entry{"descriptor-keeper", MakeDescriptorKeeper},
    Entry{"engine-blocker", MakeEngineBlocker},
    Entry{"half-attacher", MakeHalfAttacher},
    Entry{"lingerer", MakeLingerer},
    Entry{"name-hoarder", MakeNameHoarder},
    Entry{"registration-flood", MakeRegistrationFlood},
    Entry{"rubbish-writer", MakeRubbishWriter},
    Entry{"session-hoarder", MakeSessionHoarder},
    Entry{"strange-handshakes", MakeStrangeHandshakes},
    Entry{"stream-hoarder", MakeStreamHoarder},
    Entry{"trace-flood", MakeTraceFlood},
};

}  // namespace

void Did(const char* format, ...) {
  std::printf("did: ");
  va_list values;
  va_start(values, format);
  std::vprintf(format, values);
  va_end(values);
  std::printf("\n");
  std::fflush(stdout);
}

std::unique_ptr<Attacker> MakeAttacker(const std::string& name) {
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry.make();
  }
  return nullptr;
}

std::string AttackerNames() {
  std::string names;
  for (const Entry& entry : kEntries) names += std::string(entry.name) + "\n";
  return names;
}

}  // namespace ringd::soak

int main(int count, char** arguments) {
  namespace soak = ringd::soak;
  const std::unique_ptr<soak::Attacker> attacker =
      count == 5 ? soak::MakeAttacker(arguments[1]) : nullptr;
  const char* const socket = std::getenv("RINGD_SOCKET");
  if (attacker == nullptr || socket == nullptr) {
    std::fprintf(stderr, "soak_attacker NAME SECONDS SEED NICE, and RINGD_SOCKET; names:\n%s",
                 soak::AttackerNames().c_str());
    return 2;
  }
  ::setpriority(PRIO_PROCESS, 0, std::atoi(arguments[4]));
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  soak::Target target;
  target.socket = socket;
  target.end = std::chrono::steady_clock::now() +
               std::chrono::milliseconds(static_cast<int>(std::atof(arguments[2]) * 1000));
  target.seed = std::strtoull(arguments[3], nullptr, 10);
  attacker->Attack(target);
  while (!target.Over()) target.Rest(std::chrono::milliseconds(100));
  // Neither destructors nor goodbyes: hostile processes just end.
  std::fflush(stdout);
  std::_Exit(0);
}
