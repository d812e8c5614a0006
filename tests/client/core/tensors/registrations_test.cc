#include "client/core/tensors/registrations.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>

namespace ringd::client {
namespace {

TensorDescription Floats(const std::string& name, std::int64_t count) {
  TensorDescription description;
  description.name = name;
  description.shape = {count};
  description.element_count = static_cast<std::uint64_t>(count);
  return description;
}

TEST_CASE("Registrations: equal descriptions share a number, others get the next") {
  Registrations registrations;
  CHECK(registrations.FindEqual(Floats("a", 1).Key()) == 0);
  CHECK(registrations.Add(Floats("a", 1), {100}, 0) == 1);
  CHECK(registrations.Add(Floats("a", 2), {101}, 0) == 2);
  CHECK(registrations.Add(Floats("a", 1), {100}, 0) == 1);
  CHECK(registrations.FindEqual(Floats("a", 2).Key()) == 2);
  CHECK(registrations.Find(2)->numbers.registration == 101);
  CHECK(registrations.Find(2)->bytes == 8);
  CHECK(registrations.Find(0) == nullptr);
  CHECK(registrations.Find(3) == nullptr);
  CHECK(registrations.Find(~0u) == nullptr);
}

TEST_CASE("Registrations: who sends and who receives follows from kind and rank") {
  Registrations registrations;
  TensorDescription broadcast = Floats("b", 4);
  broadcast.kind = CollectiveKind::kBroadcast;
  broadcast.root_rank = 2;
  const Registration* root = registrations.Find(registrations.Add(broadcast, {1}, 2));
  CHECK(root->sends);
  CHECK_FALSE(root->receives);
  broadcast.name = "c";
  const Registration* other = registrations.Find(registrations.Add(broadcast, {2}, 0));
  CHECK_FALSE(other->sends);
  CHECK(other->receives);
  TensorDescription barrier = Floats("d", 0);
  barrier.kind = CollectiveKind::kBarrier;
  const Registration* gate = registrations.Find(registrations.Add(barrier, {3}, 0));
  CHECK_FALSE(gate->sends);
  CHECK_FALSE(gate->receives);
}

TEST_CASE("Registrations: thousands stay where they are while others are added and read") {
  Registrations registrations;
  constexpr int kCount = 5000;
  registrations.Add(Floats("t0", 0), {0}, 0);
  const Registration* first = registrations.Find(1);
  int wrong = 0;
  std::thread reader([&] {
    for (ringd_registration number = 1; number <= kCount;) {
      const Registration* found = registrations.Find(number);
      if (found == nullptr) continue;
      if (found->numbers.registration != number - 1) ++wrong;
      ++number;
    }
  });
  for (int i = 1; i < kCount; ++i) {
    registrations.Add(Floats("t" + std::to_string(i), i), {static_cast<std::uint32_t>(i)}, 0);
  }
  reader.join();
  CHECK(wrong == 0);
  CHECK(registrations.Find(1) == first);
}

TEST_CASE("Registrations: what is removed is not found, and comes again under another number") {
  Registrations registrations;
  const ringd_registration first = registrations.Add(Floats("a", 1), {100}, 0);
  const ringd_registration other = registrations.Add(Floats("a", 2), {101}, 0);
  registrations.Remove(first);
  CHECK(registrations.Find(first) == nullptr);
  CHECK(registrations.FindEqual(Floats("a", 1).Key()) == 0);
  CHECK(registrations.count() == 1);
  const ringd_registration again = registrations.Add(Floats("a", 1), {102}, 0);
  CHECK(again != first);
  CHECK(registrations.Find(again)->numbers.registration == 102);
  CHECK(registrations.Find(other)->numbers.registration == 101);
}

TEST_CASE("Registrations: one name described anew for ever takes a bounded number of places") {
  Registrations registrations;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    const ringd_registration number = registrations.Add(Floats("a", i), {i}, 0);
    REQUIRE(number != 0);
    REQUIRE((number & 0x1ffff) <= Registrations::kKeptPlaces + 2);
    REQUIRE(registrations.Find(number)->numbers.registration == i);
    registrations.Remove(number);
    REQUIRE(registrations.Find(number) == nullptr);
  }
  CHECK(registrations.count() == 0);
}

TEST_CASE("Registrations: submissions are counted by name, also across a removal") {
  Registrations registrations;
  registrations.CountByName();
  const ringd_registration first = registrations.Add(Floats("a", 1), {0}, 0);
  CHECK(registrations.Find(first)->submissions->TakeTurn() == 0);
  registrations.Remove(first);
  const ringd_registration again = registrations.Add(Floats("a", 1), {1}, 0);
  CHECK(registrations.Find(again)->submissions->TakeTurn() == 1);
  const ringd_registration wider = registrations.Add(Floats("a", 2), {2}, 0);
  CHECK(registrations.Find(wider)->submissions->TakeTurn() == 2);
  const ringd_registration other = registrations.Add(Floats("b", 2), {3}, 0);
  CHECK(registrations.Find(other)->submissions->TakeTurn() == 0);

  Registrations plain;
  const ringd_registration one = plain.Add(Floats("a", 1), {0}, 0);
  CHECK(plain.Find(one)->submissions->TakeTurn() == 0);
  plain.Remove(one);
  CHECK(plain.Find(plain.Add(Floats("a", 1), {1}, 0))->submissions->TakeTurn() == 0);
}

}  // namespace
}  // namespace ringd::client
