#include "tests/soak/attackers/member.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/soak/attackers/attacker.h"

namespace ringd::soak {
namespace {

void BeSilent(void* /*user_data*/, const char* /*text*/) {}

std::vector<int> DescriptorsLike(bool (*fits)(int descriptor, const std::string& target)) {
  std::vector<int> found;
  for (int descriptor = 3; descriptor < 4096; ++descriptor) {
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    char target[256];
    const ssize_t length = ::readlink(link.c_str(), target, sizeof(target));
    if (length > 0 && fits(descriptor, std::string(target, static_cast<std::size_t>(length)))) {
      found.push_back(descriptor);
    }
  }
  return found;
}

}  // namespace

std::vector<SharedMemory> SharedMemories(const std::string& prefix) {
  std::vector<SharedMemory> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find("memfd:" + prefix);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (at == std::string::npos ||
        std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) {
      continue;
    }
    found.push_back({line.substr(at + std::strlen("memfd:")), reinterpret_cast<std::byte*>(begin),
                     end - begin});
  }
  return found;
}

std::vector<int> EventDescriptors() {
  return DescriptorsLike(
      [](int, const std::string& target) { return target.find("[eventfd") != std::string::npos; });
}

std::vector<int> TcpSockets() {
  return DescriptorsLike([](int descriptor, const std::string&) {
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    return ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
           (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
  });
}

std::vector<std::vector<int>> WatchedTogether() {
  std::vector<std::vector<int>> found;
  for (const int poll : DescriptorsLike([](int, const std::string& target) {
         return target.find("[eventpoll]") != std::string::npos;
       })) {
    found.emplace_back();
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(poll));
    for (std::string line; std::getline(info, line);) {
      int watched = -1;
      if (std::sscanf(line.c_str(), "tfd: %d", &watched) == 1) found.back().push_back(watched);
    }
  }
  return found;
}

ringd_context* JoinFromEnvironment() {
  ringd_options options{};
  options.struct_size = sizeof(options);
  options.rank = -1;
  options.start_timeout_ms = 5000;
  options.on_warning = BeSilent;
  ringd_context* context = nullptr;
  if (ringd_open(&options, &context) != RINGD_OK) {
    Did("refused: %s", ringd_last_error());
    return nullptr;
  }
  return context;
}

ringd_context* JoinLocally(const std::string& socket, const std::string& job, int rank, int size) {
  ringd_options options{};
  options.struct_size = sizeof(options);
  options.socket = socket.c_str();
  options.job_id = job.c_str();
  options.rank = rank < 0 ? 0 : rank;
  options.size = rank < 0 ? 1 : size;
  options.local_rank = options.rank;
  options.local_size = options.size;
  options.start_timeout_ms = 20'000;
  options.on_warning = BeSilent;
  ringd_context* context = nullptr;
  return ringd_open(&options, &context) == RINGD_OK ? context : nullptr;
}

}  // namespace ringd::soak
