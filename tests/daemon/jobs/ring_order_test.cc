#include "daemon/jobs/ring_order.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringd {
namespace {

struct Node {
  std::string name;
};

// The names in ring order, of nodes a, b, c, d of which a has rank 0.
std::string Ordered(const std::vector<std::string>& wanted) {
  std::vector<Node> nodes = {{"a"}, {"b"}, {"c"}, {"d"}};
  std::vector<Node*> order;
  for (Node& node : nodes) order.push_back(&node);
  OrderRing(wanted, order);
  std::string names;
  for (const Node* node : order) names += node->name;
  return names;
}

}  // namespace

TEST_CASE("OrderRing: without a wish nodes come in the order of their ranks") {
  CHECK(Ordered({}) == "abcd");
  CHECK(Ordered({"nobody", "here"}) == "abcd");
}

TEST_CASE("OrderRing: begins with rank 0's node, wherever that stands in the ring") {
  CHECK(Ordered({"d", "c", "b", "a"}) == "adcb");
  CHECK(Ordered({"c", "a", "d", "b"}) == "adbc");
  CHECK(Ordered({"a", "c", "b", "d"}) == "acbd");
}

TEST_CASE("OrderRing: nodes that are not named come behind, strangers are skipped") {
  CHECK(Ordered({"d", "x", "a"}) == "abcd");
  CHECK(Ordered({"a", "d"}) == "adbc");
  CHECK(Ordered({"c", "c"}) == "abdc");
}

}  // namespace ringd
