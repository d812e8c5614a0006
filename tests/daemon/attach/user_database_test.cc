#include "daemon/attach/user_database.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

TEST_CASE("DescribeUser: by name, or as one whom the database does not know") {
  CHECK(DescribeUser(0) == "user root (uid 0)");
  CHECK(DescribeUser(3'999'999'999) == "uid 3999999999 (unknown to this node's user database)");
}

}  // namespace
}  // namespace ringd
