#include "tests/simulation/scenario.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "tests/simulation/random.h"

namespace ringd::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// What tensors of a job may be like, besides the usual.
struct Variety {
  bool may_be_empty = false;  // one in ten or so has an extent of 0
  bool on_gpus = false;       // half of them are
};

TensorMeta RandomMeta(Random& random, const Variety& variety) {
  constexpr std::array kTypes = {DataType::kFloat32, DataType::kFloat32, DataType::kFloat32,
                                 DataType::kBfloat16, DataType::kInt64};
  TensorMeta meta;
  meta.dtype = kTypes[static_cast<std::size_t>(random.Int(0, 4))];
  meta.op = random.Chance(80) ? ReduceOp::kAverage : ReduceOp::kSum;
  const int dimensions = random.Int(0, 3);
  for (int i = 0; i < dimensions; ++i) {
    meta.shape.push_back(variety.may_be_empty && random.Chance(7) ? 0 : random.Int(1, 200));
  }
  if (variety.on_gpus && random.Chance(50)) meta.place = TensorPlace::kDevice;
  return meta;
}

std::vector<PhaseTensor> MakeTensors(Random& random, const std::string& prefix, int count,
                                     const Variety& variety) {
  std::vector<PhaseTensor> tensors;
  for (int i = 0; i < count; ++i) {
    tensors.push_back({prefix + std::to_string(i), RandomMeta(random, variety), std::nullopt, {}});
  }
  return tensors;
}

PhaseTensor Special(const std::string& name, CollectiveKind kind) {
  PhaseTensor tensor{name, {}, std::nullopt, {}};
  tensor.meta.kind = kind;
  if (kind == CollectiveKind::kBroadcast) tensor.meta.shape = {64};
  return tensor;
}

// The pieces from which programs are made; each appends one training step.
class ProgramMaker {
 public:
  ProgramMaker(Random random, std::string prefix, int ranks, int tensor_count, Variety variety)
      : random_(random), prefix_(std::move(prefix)), ranks_(ranks), variety_(variety) {
    tensors_ = MakeTensors(random_, prefix_ + "w", tensor_count, variety_);
    compute_ = random_.Duration(microseconds(0), milliseconds(3));
    own_order_ = random_.Chance(50);
  }

  Program Take() { return std::move(program_); }
  void SetOwnOrder(bool own_order) { own_order_ = own_order; }
  Random& random() { return random_; }

  Phase& Add(std::vector<PhaseTensor> tensors) {
    Phase& phase = program_.emplace_back();
    phase.tensors = std::move(tensors);
    phase.own_order = own_order_;
    phase.compute = compute_;
    return phase;
  }

  void Regular() { Add(tensors_); }

  void InitialBroadcast() {
    std::vector<PhaseTensor> tensors;
    for (const PhaseTensor& tensor : tensors_) {
      tensors.push_back(Special(tensor.name + ".init", CollectiveKind::kBroadcast));
    }
    Add(std::move(tensors));
  }

  void OneByOne() {
    for (const PhaseTensor& tensor : tensors_) Add({tensor});
  }

  // Groups of tensors, with and without waiting between them.
  void Mixed() {
    std::size_t begin = 0;
    while (begin < tensors_.size()) {
      const auto length = static_cast<std::size_t>(random_.Int(1, 5));
      const std::size_t end = std::min(begin + length, tensors_.size());
      Phase& phase = Add({tensors_.begin() + static_cast<std::ptrdiff_t>(begin),
                          tensors_.begin() + static_cast<std::ptrdiff_t>(end)});
      phase.wait_percent = random_.Chance(30) ? 30 : 0;
      phase.wait_for_all = random_.Chance(30);
      phase.external_barrier = random_.Chance(5);
      begin = end;
    }
  }

  void UnusedBranches() {
    std::vector<PhaseTensor> used;
    for (const PhaseTensor& tensor : tensors_) {
      if (random_.Chance(70)) used.push_back(tensor);
    }
    Add(std::move(used)).wait_for_all = random_.Chance(80);
  }

  void ShapeChange(int percent) {
    for (PhaseTensor& tensor : tensors_) {
      if (random_.Chance(percent)) tensor.meta = RandomMeta(random_, variety_);
    }
    Regular();
  }

  void Mismatch(int percent) {
    Phase& phase = Add(tensors_);
    for (PhaseTensor& tensor : phase.tensors) {
      if (!random_.Chance(percent)) continue;
      tensor.deviating_rank = random_.Int(0, ranks_ - 1);
      tensor.deviating_meta = RandomMeta(random_, variety_);
    }
  }

  void NewTensors() {
    if (random_.Chance(30)) {
      const int count = random_.Int(1, 4);
      const std::string prefix = prefix_ + "n" + std::to_string(program_.size()) + ".";
      for (PhaseTensor& tensor : MakeTensors(random_, prefix, count, variety_)) {
        tensors_.push_back(tensor);
      }
    }
    if (random_.Chance(30) && tensors_.size() > 3) {
      tensors_.erase(tensors_.begin() + random_.Int(0, static_cast<int>(tensors_.size()) - 1));
    }
    Regular();
  }

  // Names that never return, as made up by calls without a name.
  void UniqueNames() {
    std::vector<PhaseTensor> tensors = tensors_;
    tensors.push_back({prefix_ + "noname." + std::to_string(program_.size()),
                       RandomMeta(random_, variety_),
                       std::nullopt,
                       {}});
    Add(std::move(tensors));
  }

  void Discriminator(int half) {
    const auto middle = tensors_.begin() + static_cast<std::ptrdiff_t>(tensors_.size() / 2);
    Add(half == 0 ? std::vector<PhaseTensor>(tensors_.begin(), middle)
                  : std::vector<PhaseTensor>(middle, tensors_.end()));
  }

  void Loss() { Add({Special(prefix_ + "loss", CollectiveKind::kAllReduce)}); }
  void Barrier() { Add({Special(prefix_ + "barrier", CollectiveKind::kBarrier)}); }

 private:
  Random random_;
  const std::string prefix_;
  const int ranks_;
  const Variety variety_;
  std::vector<PhaseTensor> tensors_;
  nanoseconds compute_{0};
  bool own_order_ = false;
  Program program_;
};

constexpr std::array<const char*, kKindCount> kKinds = {
    "regular", "one_by_one",   "mixed",       "unused_branches", "shape_changes", "mismatch",
    "gan",     "accumulation", "new_tensors", "unique_names",    "threads",       "mixture",
    "pauses",  "node_loss",    "drift",       "rank_loss",       "two_losses",    "host_loss"};

void AddStep(const std::string& kind, int step, ProgramMaker& maker) {
  if (kind == "one_by_one") return maker.OneByOne();
  if (kind == "mixed" || kind == "threads") return maker.Mixed();
  if (kind == "unused_branches") return maker.UnusedBranches();
  if (kind == "shape_changes") return maker.ShapeChange(step % 4 == 3 ? 20 : 0);
  if (kind == "mismatch") return maker.Mismatch(step % 4 == 3 ? 20 : 0);
  if (kind == "gan") return maker.Discriminator(step % 3 == 2 ? 1 : 0);
  if (kind == "new_tensors") return maker.NewTensors();
  if (kind == "unique_names") return maker.UniqueNames();
  if (kind == "accumulation") {
    if (step % 4 == 3) maker.Regular();
    return maker.Loss();
  }
  if (kind == "regular") return maker.Regular();
  if (kind == "drift" && !maker.random().Chance(20)) return maker.Regular();
  // Everything in one program.
  switch (maker.random().Int(0, 9)) {
    case 0:
      return maker.OneByOne();
    case 1:
      return maker.Mixed();
    case 2:
      return maker.UnusedBranches();
    case 3:
      return maker.ShapeChange(20);
    case 4:
      return maker.Mismatch(20);
    case 5:
      return maker.NewTensors();
    case 6:
      return maker.Barrier();
    default:
      return maker.Regular();
  }
}

// A rank, or a node with all its ranks.
Loss PickLoss(Random& random, const Scenario& scenario, bool is_node, nanoseconds at) {
  Loss loss;
  loss.node = random.Int(0, static_cast<int>(scenario.ranks_on_node.size()) - 1);
  loss.at = at;
  if (is_node) {
    loss.noticed_within = milliseconds(random.Int(1, 500));
    return loss;
  }
  const auto node = scenario.ranks_on_node.begin() + loss.node;
  loss.rank = std::accumulate(scenario.ranks_on_node.begin(), node, 0) + random.Int(0, *node - 1);
  loss.noticed_within = milliseconds(random.Int(1, 150));
  return loss;
}

// On two nodes, and so close to each other that word of the one may cross word of the other. Of two
// nodes one stays.
void AddTwoLosses(Random& random, Scenario& scenario, nanoseconds at) {
  const Loss first = PickLoss(random, scenario, random.Chance(50), at);
  const bool many = scenario.ranks_on_node.size() > 2;
  Loss second;
  do {
    second = PickLoss(random, scenario, many && random.Chance(50),
                      at + random.Duration(nanoseconds(0), 2 * scenario.message_delay));
  } while (second.node == first.node);
  scenario.losses = {first, second};
  for (Loss& loss : scenario.losses) loss.noticed_within = 2 * scenario.message_delay;
}

// Mostly the coordinator's host, and often amid its telling of another loss.
void AddHostLoss(Random& random, Scenario& scenario, nanoseconds at) {
  Loss host = PickLoss(random, scenario, true, at);
  if (random.Chance(60)) host.node = 0;
  host.with_host = true;
  if (random.Chance(50)) {
    Loss first = PickLoss(random, scenario, false, at);
    first.noticed_within = scenario.message_delay;
    host.at += random.Duration(nanoseconds(0), 3 * scenario.message_delay);
    scenario.losses.push_back(first);
  }
  scenario.losses.push_back(host);
}

void PlanMisfortunes(Random& random, Scenario& scenario) {
  const int nodes = static_cast<int>(scenario.ranks_on_node.size());
  const auto moment = [&] { return random.Duration(milliseconds(0), milliseconds(200)); };
  // Most jobs are still under way.
  const auto early = [&] { return random.Duration(milliseconds(0), milliseconds(120)); };
  if (scenario.kind == "pauses") {
    for (int i = random.Int(1, 3); i > 0; --i) {
      scenario.pauses.push_back({random.Int(0, nodes - 1), moment(),
                                 random.Duration(milliseconds(1), milliseconds(9000))});
    }
  }
  if (scenario.kind == "node_loss") {
    scenario.losses.push_back(PickLoss(random, scenario, true, early()));
  }
  if (scenario.kind == "rank_loss") {
    scenario.losses.push_back(PickLoss(random, scenario, false, early()));
  }
  if (scenario.kind == "two_losses") AddTwoLosses(random, scenario, early());
  if (scenario.kind == "host_loss") AddHostLoss(random, scenario, early());
  if (scenario.kind == "mixture" || scenario.kind == "pauses" || scenario.kind == "threads") {
    for (int i = random.Int(0, 2); i > 0; --i) scenario.replans.push_back(moment());
  }
  if (scenario.kind == "drift") {
    // Thin lines, then far ones: what is best for the one is bad for the other.
    for (int i = random.Int(4, 24); i > 0; --i) {
      const bool is_thin = i % 2 == 0;
      scenario.link_changes.push_back(
          {2 * moment(),
           is_thin ? microseconds(random.Int(1, 20)) : milliseconds(random.Int(2, 50)),
           is_thin ? 1e6 * random.Int(1, 50) : 1e9 * random.Int(1, 50)});
    }
  }
}

int PickNodeCount(Random& random) {
  const int dice = random.Int(1, 100);
  if (dice <= 70) return random.Int(2, 5);
  if (dice <= 95) return random.Int(6, 12);
  return random.Int(13, 64);
}

}  // namespace

const char* KindOf(std::uint64_t seed) { return kKinds[seed % kKindCount]; }

Scenario MakeScenario(std::uint64_t seed, int nodes) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.kind = KindOf(seed);
  const int picked = PickNodeCount(random);
  const int node_count = nodes > 0 ? nodes : picked;
  int ranks = 0;
  for (int i = 0; i < node_count; ++i) {
    scenario.ranks_on_node.push_back(random.Int(1, node_count > 12 ? 2 : 4));
    ranks += scenario.ranks_on_node.back();
  }
  scenario.message_delay = random.Duration(microseconds(20), milliseconds(4));
  scenario.transfer_delay = random.Duration(microseconds(50), milliseconds(4));
  if (random.Chance(20)) scenario.fusion_threshold_bytes = std::size_t{4} << 10;
  if (random.Chance(30)) scenario.max_bucket_bytes = std::size_t{1} << random.Int(10, 22);

  const bool exact = scenario.kind == "regular" || scenario.kind == "one_by_one" ||
                     scenario.kind == "gan" || scenario.kind == "accumulation";
  if (!exact) {
    scenario.wait_knowledge = static_cast<WaitKnowledge>(random.Int(0, 2));
    scenario.blocked_ranks_visible = random.Chance(80);
    scenario.learn = random.Chance(95);
    if (random.Chance(20)) scenario.max_buckets = static_cast<std::size_t>(random.Int(1, 4));
  }
  // A bucket on GPUs costs messages in each step.
  const bool on_gpus = !exact && random.Chance(40);
  scenario.streams_wait = on_gpus && random.Chance(50);
  const int tensor_count = random.Int(1, node_count > 12 ? 8 : 14);
  const int steps = exact ? 20 : scenario.kind == "drift" ? 40 : random.Int(6, 14);
  scenario.steps = steps;
  const int threads = scenario.kind == "threads" ? random.Int(2, 3) : 1;
  for (int thread = 0; thread < threads; ++thread) {
    const std::string prefix = threads > 1 ? "t" + std::to_string(thread) + "." : "";
    // An empty tensor is negotiated each time, so these would not be silent.
    ProgramMaker maker(random.Fork(), prefix, ranks, tensor_count + (scenario.kind == "gan"),
                       {.may_be_empty = !exact, .on_gpus = on_gpus});
    if (scenario.kind == "one_by_one" || scenario.kind == "gan") maker.SetOwnOrder(false);
    if (random.Chance(50)) maker.InitialBroadcast();
    for (int step = 0; step < steps; ++step) AddStep(scenario.kind, step, maker);
    scenario.programs.push_back(maker.Take());
  }
  PlanMisfortunes(random, scenario);
  if (exact) {
    scenario.expect_no_breaks = true;
    scenario.silent_from_phase = scenario.programs.front().size() * 7 / 10;
  }
  return scenario;
}

}  // namespace ringd::simulation
