// What hostile processes of the soak have in common. Each attack is a class in a file of its own,
// named for what it tries; attackers.cc lists them.
#ifndef RINGD_TESTS_SOAK_ATTACKERS_ATTACKER_H_
#define RINGD_TESTS_SOAK_ATTACKERS_ATTACKER_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace ringd::soak {

struct Target {
  std::string socket;  // of the ringd that is attacked
  std::uint64_t seed = 0;
  std::chrono::steady_clock::time_point end;  // of the attack

  bool Over() const { return std::chrono::steady_clock::now() >= end; }
  void Rest(std::chrono::milliseconds most) const {
    std::this_thread::sleep_until(std::min(end, std::chrono::steady_clock::now() + most));
  }
};

// One process runs one attack, or one rank's part of it.
//
// Thread safety: one thread; an attack may have threads of its own.
class Attacker {
 public:
  virtual ~Attacker() = default;
  // Attacks until `target` says that it is over. Returning sooner is allowed: the process then
  // holds what it has until the end. What it is refused it takes for an answer, and tries again as
  // its nature is.
  virtual void Attack(const Target& target) = 0;
};

// Tells the soak what the attack has come to, in printf's way. At least once, or it counts as not
// made.
[[gnu::format(printf, 1, 2)]] void Did(const char* format, ...);

// Makes the attack of that name; null if there is none.
std::unique_ptr<Attacker> MakeAttacker(const std::string& name);

// One line for each attack.
std::string AttackerNames();

// The attacks; each in the file of its name.
std::unique_ptr<Attacker> MakeCommunicatorHoarder();
std::unique_ptr<Attacker> MakeConnectFlood();
std::unique_ptr<Attacker> MakeDescriptorKeeper();
std::unique_ptr<Attacker> MakeEngineBlocker();
std::unique_ptr<Attacker> MakeHalfAttacher();
std::unique_ptr<Attacker> MakeLingerer();
std::unique_ptr<Attacker> MakeNameHoarder();
std::unique_ptr<Attacker> MakeRegistrationFlood();
std::unique_ptr<Attacker> MakeRubbishWriter();
std::unique_ptr<Attacker> MakeSessionHoarder();
std::unique_ptr<Attacker> MakeStrangeHandshakes();
std::unique_ptr<Attacker> MakeStreamHoarder();
std::unique_ptr<Attacker> MakeTraceFlood();

}  // namespace ringd::soak

#endif  // RINGD_TESTS_SOAK_ATTACKERS_ATTACKER_H_
