// What most tests include of the system's libraries, compiled once (tests/BUILD, .bazelrc). Tests
// name what they use all the same: clang-tidy reads them without this.
#ifndef RINGD_TESTS_SYSTEM_HEADERS_H_
#define RINGD_TESTS_SYSTEM_HEADERS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"

#endif  // RINGD_TESTS_SYSTEM_HEADERS_H_
