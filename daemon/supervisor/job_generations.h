// Which generation the next job of a name begins with.
#ifndef RINGD_DAEMON_SUPERVISOR_JOB_GENERATIONS_H_
#define RINGD_DAEMON_SUPERVISOR_JOB_GENERATIONS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace ringd {

// A restarted trainer never meets its own past: the generations of a name grow, from one engine to
// the next. Of each user so many names are remembered. What is forgotten raises where all names of
// that user begin that are not remembered, and of no other user's: engines say what it is. So many
// users are remembered, those whose jobs have begun last.
//
// Thread safety: none.
class JobGenerations {
 public:
  static constexpr std::size_t kMostOfUser = 1024;
  static constexpr std::size_t kMostUsers = 4096;

  // Of a job that begins.
  std::uint32_t Next(uid_t uid, const std::string& job_id) const;
  // A job of that name has begun: `next`, or what was noted before if that is more, follows it.
  void Note(uid_t uid, const std::string& job_id, std::uint32_t next);

 private:
  struct Name {
    std::uint32_t next = 0;
    std::uint64_t noted = 0;
  };
  struct User {
    std::map<std::string, Name> names;
    std::uint32_t others = 0;  // what follows those that were forgotten
    std::uint64_t noted = 0;
  };

  std::map<uid_t, User> users_;
  std::uint64_t notes_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_JOB_GENERATIONS_H_
