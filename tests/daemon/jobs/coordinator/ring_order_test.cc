#include "daemon/jobs/coordinator/ring_order.h"

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

TEST_CASE("DescribeMisfit: a list that names all of the job's nodes fits, whatever else it names") {
  CHECK(DescribeMisfit({}, {"a", "b", "c"}).empty());
  CHECK(DescribeMisfit({"c", "b", "a"}, {"a", "b", "c"}).empty());
  CHECK(DescribeMisfit({"x", "c", "y", "b", "a", "z"}, {"a", "b", "c"}).empty());
}

TEST_CASE("DescribeMisfit: names the nodes that are not named, and the names that no node has") {
  CHECK(DescribeMisfit({"a", "b", "C"}, {"a", "b", "c"}) ==
        "does not name c, which the ring takes behind the nodes that it names; no nodes of the job "
        "are C");
  CHECK(DescribeMisfit({"d", "a"}, {"a", "b", "c", "d"}) ==
        "does not name b, c, which the ring takes behind the nodes that it names");
}

TEST_CASE("DescribeMisfit: a list that names none of the nodes is not followed") {
  CHECK(DescribeMisfit({"A", "B"}, {"a", "b", "c"}) ==
        "names none of the job's nodes (a, b, c) and is not followed; it names A, B");
}

TEST_CASE("DescribeMisfit: an order of two nodes changes nothing") {
  CHECK(DescribeMisfit({"a"}, {"a", "b"}).empty());
  CHECK(DescribeMisfit({"elsewhere"}, {"a"}).empty());
}

TEST_CASE("DescribeMisfit: of long lists only the beginning is shown") {
  std::vector<std::string> wanted;
  for (int i = 0; i < 1000; ++i) wanted.push_back(std::to_string(i));
  const std::string text = DescribeMisfit(wanted, {"a", "b", "c"});
  CHECK_THAT(text, Catch::Matchers::EndsWith("it names 0, 1, 2, 3, 4, 5, 6, 7 and 992 more"));
}

}  // namespace ringd
