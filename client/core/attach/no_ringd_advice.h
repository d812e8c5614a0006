// What to do where there is no ringd.
#ifndef RINGD_CLIENT_CORE_ATTACH_NO_RINGD_ADVICE_H_
#define RINGD_CLIENT_CORE_ATTACH_NO_RINGD_ADVICE_H_

#include <sys/types.h>

#include <string>

#include "client/core/attach/launcher_environment.h"

namespace ringd::client {

inline constexpr char kDefaultSocket[] = "/run/ringd/ringd.sock";

// The ways out for somebody whose job finds no ringd at `socket`: part of a sentence, on one line.
// Each works as it stands for this process's user, whose number is `uid`. `places` and the launcher
// in the environment say what would be run.
std::string NoRingdAdvice(const std::string& socket, const Places& places,
                          const GetEnvironment& get, uid_t uid);

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_NO_RINGD_ADVICE_H_
