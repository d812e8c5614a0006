#include "daemon/jobs/plans/plan_store.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace ringd {
namespace {

using std::chrono::microseconds;

std::string ReadAll(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// A file that was brought to the disk: its name and content then, and those of what it is to
// replace.
struct Synced {
  std::string path;
  std::string text;
  std::string file_then;
};
std::vector<Synced> synced;

void NoteSync(int fd) {
  const std::string path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd));
  synced.push_back({path, ReadAll(path), ReadAll(path.substr(0, path.rfind('.')))});
}

// A folder of its own, gone at the end.
struct Folder {
  Folder() {
    char name[] = "/tmp/plansXXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string state() const { return path + "/state"; }
  std::string file() const { return state() + "/plans.json"; }
  std::string Read() const { return ReadAll(file()); }
  void Write(const std::string& text) const {
    std::filesystem::create_directories(state());
    std::ofstream(file()) << text;
  }

  std::string path;
};

KeptTensor Tensor(const std::string& name, std::int64_t floats = 8) {
  KeptTensor tensor;
  tensor.name = name;
  tensor.meta.shape = {floats, 3};
  tensor.meta.op = ReduceOp::kAverage;
  tensor.meta.postscale = 0.25;
  tensor.ready_offset = microseconds(1234);
  tensor.follows_wait = name == "b";
  return tensor;
}

KeptPlan Plan(const std::string& name = "a") {
  KeptPlan plan;
  plan.buckets = {{Tensor(name), Tensor("b")}, {Tensor("c")}};
  plan.link_measured = true;
  plan.latency = microseconds(45);
  plan.bytes_per_second = 1.17e8;
  return plan;
}

}  // namespace

TEST_CASE("PlanStore: what one has kept the next one finds") {
  const Folder folder;
  {
    PlanStore store(folder.state());
    CHECK(store.Find("nodes").empty());
    store.Put("nodes", Plan());
    store.Put("others", Plan("x"));
  }
  const PlanStore store(folder.state());
  const auto found = store.Find("nodes");
  REQUIRE(found.size() == 1);
  CHECK(found[0]->buckets == Plan().buckets);
  CHECK(found[0]->link_measured);
  CHECK(found[0]->latency == microseconds(45));
  CHECK(found[0]->bytes_per_second == 1.17e8);
  CHECK(store.Find("nobody").empty());
}

TEST_CASE("PlanStore: a plan replaces the one of the same tensors, in whatever buckets") {
  const Folder folder;
  PlanStore store(folder.state());
  store.Put("nodes", Plan());
  KeptPlan other = Plan();
  other.buckets = {{Tensor("c"), Tensor("a")}, {Tensor("b")}};
  other.buckets[0][0].ready_offset = microseconds(1);
  store.Put("nodes", other);
  REQUIRE(store.Find("nodes").size() == 1);
  CHECK(store.Find("nodes")[0]->buckets == other.buckets);
  other.buckets[0][0] = Tensor("c", 9);
  store.Put("nodes", other);
  REQUIRE(store.Find("nodes").size() == 2);
  CHECK(store.Find("nodes")[0]->buckets == other.buckets);
}

TEST_CASE("PlanStore: what was not used for longest goes when there are too many") {
  const Folder folder;
  {
    PlanStore store(folder.state());
    for (std::size_t i = 0; i <= PlanStore::kMaxPlans; ++i) {
      store.Put("nodes", Plan("t" + std::to_string(i)));
      store.Put("first", Plan());
    }
  }
  const PlanStore store(folder.state());
  CHECK(store.Find("first").size() == 1);
  CHECK(store.Find("nodes").size() == PlanStore::kMaxPlans - 1);
  CHECK(store.Find("nodes")[0]->buckets[0][0].name == "t" + std::to_string(PlanStore::kMaxPlans));
}

TEST_CASE("PlanStore: the number of tensors is bounded, too") {
  PlanStore store("");
  for (int p = 0; p < 3; ++p) {
    KeptPlan plan;
    for (std::size_t i = 0; i < PlanStore::kMaxTensors / 2; ++i) {
      plan.buckets.push_back({Tensor(std::to_string(p) + "." + std::to_string(i))});
    }
    store.Put("nodes", std::move(plan));
  }
  CHECK(store.Find("nodes").size() == 2);
}

TEST_CASE("PlanStore: a file that can't be understood is not used, and written anew") {
  const Folder folder;
  PlanStore(folder.state()).Put("nodes", Plan());
  std::string text = folder.Read();
  SECTION("rubbish") { text = "\x01\x02{{{"; }
  SECTION("half of it") { text.resize(text.size() / 2); }
  SECTION("nothing") { text.clear(); }
  SECTION("another version") { text.replace(text.find("\"version\":1"), 11, "\"version\":2"); }
  SECTION("an unknown field") {
    text.replace(text.find("\"version\":1"), 11, "\"version\":1,\"x\":3");
  }
  folder.Write(text);
  CHECK_FALSE(ParseState(text).ok());
  {
    PlanStore store(folder.state());
    CHECK(store.Find("nodes").empty());
    CHECK(folder.Read() == text);
    store.Put("nodes", Plan("new"));
  }
  CHECK(ParseState(folder.Read()).value().state.plans.size() == 1);
}

TEST_CASE("PlanStore: a file that can't be read to its end is not used") {
  const Folder folder;
  std::filesystem::create_directories(folder.state());
  // It opens, and every look at its beginning fails.
  std::filesystem::create_symlink("/proc/self/mem", folder.file());
  const PlanStore store(folder.state());
  CHECK(store.Find("nodes").empty());
}

TEST_CASE("PlanStore: an entry that can't be is left out, and all others are used") {
  const Folder folder;
  constexpr std::int64_t kNow = 1'790'000'000;
  {
    PlanStore store(folder.state());
    LinkMatrix links(2);
    links.at(0, 1) = links.at(1, 0) = {microseconds(55), 1.25e8};
    store.PutLinks({"p", "q"}, links, kNow);
    links.at(0, 1) = links.at(1, 0) = {microseconds(77), 3.25e8};
    store.PutLinks({"x", "y"}, links, kNow);
    store.PutTrial({{"t", "u"}, {}, kNow});
    store.PutTrial({{"v", "w"}, {{64, microseconds(606), microseconds(707)}}, kNow});
    store.Put("others", Plan("good"));
    store.Put("nodes", Plan());
  }
  std::string text = folder.Read();
  // What is said last comes first.
  const auto replace = [&text](const std::string& what, const std::string& with) {
    REQUIRE(text.find(what) != std::string::npos);
    text.replace(text.find(what), what.size(), with);
  };
  bool plan = true, link = true, trial = true;
  SECTION("a tensor twice") { replace("\"b\"", "\"a\""), plan = false; }
  SECTION("a negative shape") { replace("\"8\"", "\"-8\""), plan = false; }
  SECTION("a time that can't be") { replace("1234", "-1e9"), plan = false; }
  SECTION("an endless bandwidth") { replace("117000000", "\"Infinity\""), plan = false; }
  SECTION("a link that takes no bytes") { replace("325000000", "0"), link = false; }
  SECTION("a link of a node to itself") { replace("\"x\"", "\"y\""), link = false; }
  SECTION("an all-reduce of another size") { replace("\"64\"", "\"65\""), trial = false; }
  SECTION("an all-reduce without time") { replace("606", "0"), trial = false; }
  SECTION("a node without a name") { replace("\"v\"", "\"\""), trial = false; }
  folder.Write(text);
  REQUIRE(ParseState(text).ok());
  CHECK(ParseState(text)->left_out.size() == 1);
  const PlanStore store(folder.state());
  CHECK(store.Find("nodes").size() == (plan ? 1 : 0));
  CHECK(store.Find("others").size() == 1);
  CHECK(store.FindLinks({"x", "y"}, kNow).has_value() == link);
  CHECK(store.FindLinks({"p", "q"}, kNow).has_value());
  CHECK(store.FindTrial({"v", "w"}, kNow).has_value() == trial);
  CHECK(store.FindTrial({"t", "u"}, kNow).has_value());
}

TEST_CASE("PlanStore: what takes the file's place is on the disk before it does") {
  const Folder folder;
  PlanStore(folder.state()).Put("nodes", Plan());
  const std::string first = folder.Read();
  synced.clear();
  PlanStore(folder.state()).Put("others", Plan());
  REQUIRE(synced.size() == 1);
  CHECK(synced[0].path.find(folder.file() + ".") == 0);
  CHECK(synced[0].text == folder.Read());
  CHECK(synced[0].file_then == first);
}

TEST_CASE("PlanStore: a folder that can't be written costs only the keeping") {
  const Folder folder;
  std::ofstream(folder.path + "/plain") << "a file";
  {
    PlanStore store(folder.path + "/plain/state");
    store.Put("nodes", Plan());
    CHECK(store.Find("nodes").size() == 1);
  }
  CHECK_FALSE(std::filesystem::exists(folder.state()));
}

TEST_CASE("PlanStore: without a folder nothing is written") {
  PlanStore store("");
  store.Put("nodes", Plan());
  CHECK(store.Find("nodes").size() == 1);
}

TEST_CASE("PlanStore: leaves no drafts beside the file") {
  const Folder folder;
  {
    PlanStore store(folder.state());
    for (int i = 0; i < 20; ++i) store.Put("nodes", Plan("t" + std::to_string(i)));
  }
  CHECK(std::distance(std::filesystem::directory_iterator(folder.state()), {}) == 1);
  CHECK(ParseState(folder.Read()).value().state.plans.size() == 20);
}

TEST_CASE("PlanStore: links between nodes are found again, in whatever order, until they are old") {
  const Folder folder;
  constexpr std::int64_t kNow = 1'790'000'000;
  constexpr std::int64_t kDay = PlanStore::kMeasuredLasts.count();
  LinkMatrix links(3);
  for (std::size_t from = 0; from < 3; ++from) {
    for (std::size_t to = 0; to < 3; ++to) {
      links.at(from, to) = {microseconds(10 * from + to),
                            1e8 * static_cast<double>(1 + from * 3 + to)};
    }
  }
  {
    PlanStore store(folder.state());
    CHECK_FALSE(store.FindLinks({"a", "b", "c"}, kNow).has_value());
    store.PutLinks({"a", "b", "c"}, links, kNow);
    store.Put("nodes", Plan());
  }
  const PlanStore store(folder.state());
  CHECK(store.Find("nodes").size() == 1);
  const auto found = store.FindLinks({"c", "a"}, kNow + kDay - 1);
  REQUIRE(found.has_value());
  CHECK(found->links.at(0, 1) == links.at(2, 0));
  CHECK(found->links.at(1, 0) == links.at(0, 2));
  CHECK(found->unix_seconds == kNow);
  CHECK_FALSE(store.FindLinks({"c", "a"}, kNow + kDay).has_value());
  CHECK_FALSE(store.FindLinks({"c", "a"}, kNow - 1).has_value());
  CHECK_FALSE(store.FindLinks({"a", "b", "d"}, kNow).has_value());
}

TEST_CASE("PlanStore: links measured again replace the old ones, others stay") {
  PlanStore store("");
  LinkMatrix links(2);
  links.at(0, 1) = links.at(1, 0) = {microseconds(10), 1e9};
  store.PutLinks({"a", "b"}, links, 1000);
  store.PutLinks({"c", "d"}, links, 2000);
  links.at(0, 1).bytes_per_second = 2e9;
  store.PutLinks({"a", "b"}, links, 3000);
  CHECK(store.FindLinks({"a", "b"}, 3000)->links.at(0, 1).bytes_per_second == 2e9);
  CHECK(store.FindLinks({"a", "b"}, 3000)->unix_seconds == 3000);
  CHECK(store.FindLinks({"c", "d"}, 3000)->unix_seconds == 2000);
}

TEST_CASE("PlanStore: a trial is found again by its nodes, in their order, until it is old") {
  const Folder folder;
  constexpr std::int64_t kNow = 1'790'000'000;
  constexpr std::int64_t kDay = PlanStore::kMeasuredLasts.count();
  const StoredTrial trial = {
      {"a", "b", "c"},
      {{64, microseconds(95), microseconds(180)}, {1024, microseconds(190), microseconds(181)}},
      kNow};
  const StoredTrial undecided = {{"a", "c", "b"}, {}, kNow};
  {
    PlanStore store(folder.state());
    store.PutTrial({{"a", "b", "c"}, {}, kNow - 1});
    store.PutTrial(trial);
    store.PutTrial(undecided);
  }
  const PlanStore store(folder.state());
  CHECK(ParseState(folder.Read()).value().state.trials.size() == 2);
  CHECK(store.FindTrial({"a", "b", "c"}, kNow + kDay - 1) == trial);
  CHECK(store.FindTrial({"a", "c", "b"}, kNow) == undecided);
  CHECK_FALSE(store.FindTrial({"a", "b", "c"}, kNow + kDay).has_value());
  CHECK_FALSE(store.FindTrial({"a", "b", "c"}, kNow - 1).has_value());
  CHECK_FALSE(store.FindTrial({"a", "b"}, kNow).has_value());
}

TEST_CASE("PlanStore: the number of trials is bounded") {
  PlanStore store("");
  for (std::size_t i = 0; i <= PlanStore::kMaxTrials; ++i) {
    store.PutTrial({{"a", std::to_string(i)}, {}, 1000});
  }
  CHECK_FALSE(store.FindTrial({"a", "0"}, 1000).has_value());
  CHECK(store.FindTrial({"a", "1"}, 1000).has_value());
}

TEST_CASE("PlanStore: links that could not be measured are tried again after a while") {
  PlanStore store("");
  CHECK(store.IsWorthMeasuring({"a", "b"}, 1000));
  store.NoteUnmeasured({"a", "b"}, 1000);
  CHECK_FALSE(store.IsWorthMeasuring({"a", "b"}, 1000 + PlanStore::kRetryAfter.count() - 1));
  CHECK(store.IsWorthMeasuring({"a", "b"}, 1000 + PlanStore::kRetryAfter.count()));
  CHECK(store.IsWorthMeasuring({"a", "c"}, 1000));
  // By a clock that was ahead, or by nobody's.
  store.NoteUnmeasured({"a", "d"}, INT64_MAX);
  store.NoteUnmeasured({"a", "e"}, INT64_MIN);
  CHECK(store.IsWorthMeasuring({"a", "d"}, 1000));
  CHECK(store.IsWorthMeasuring({"a", "e"}, 1000));
}

TEST_CASE("NodesKey: users, nodes, their order and their ranks all count") {
  Membership two;
  two.nodes = {{"a", "", {MemberRank{}}}, {"b", "", {MemberRank{}, MemberRank{}}}};
  Membership turned = two;
  std::swap(turned.nodes[0], turned.nodes[1]);
  Membership more = two;
  more.nodes[0].ranks.push_back(MemberRank{});
  CHECK(NodesKey(0, two) == NodesKey(0, two));
  CHECK(NodesKey(0, two) != NodesKey(1, two));
  CHECK(NodesKey(0, two) != NodesKey(0, turned));
  CHECK(NodesKey(0, two) != NodesKey(0, more));
  CHECK(HashText("a") == "af63dc4c8601ec8c");
}

}  // namespace ringd

// In place of the C library's, which no test could tell from none.
extern "C" int fsync(int fd) {
  ringd::NoteSync(fd);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
