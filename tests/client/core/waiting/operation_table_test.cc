#include "client/core/waiting/operation_table.h"

#include <catch2/catch.hpp>
#include <vector>

namespace ringd::client {
namespace {

struct Entry : OperationEntry {
  OperationEnd end;
  OperationOutcome outcome;
};

struct Table : OperationWords {
  explicit Table(std::uint32_t capacity) : places(capacity) {}

  // Its OperationEnd is nothing, if `plain`.
  Entry& Submit(std::uint64_t sequence, bool plain = true) {
    Entry& entry = table.Take(sequence);
    entry.end = {};
    if (!plain) entry.end.staging_offset = sequence;
    table.SetWordAt(Word(sequence, kInFlight, plain));
    return entry;
  }
  void End(std::uint64_t sequence, std::int32_t status = 0) {
    Entry& entry = *table.Find(sequence);
    entry.outcome = {};
    entry.outcome.completed = true;
    entry.outcome.status = status;
    const bool plain = status == 0 && IsPlain(places.WordOf(entry, sequence));
    table.SetWord(entry, Word(sequence, kDone, plain));
  }
  WaitResult Look(std::uint64_t sequence) {
    const Entry* const entry = table.Find(sequence);
    if (entry == nullptr) return WaitResult::kUnknown;
    return ResultOf(places.WordOf(*entry, sequence), sequence);
  }
  std::size_t Take(const std::vector<std::uint64_t>& sequences) {
    ends.clear();
    return table.ConsumeSucceeded(
        sequences, ends, [](const Entry&) { return true; },
        [](const Entry& entry) { return entry.end; });
  }

  OperationPlaces<Entry> places;
  OperationTable<Entry> table{places};
  std::vector<OperationEnd> ends;
};

TEST_CASE("OperationTable: an operation is found until it is taken out") {
  Table table(4);
  CHECK(table.Look(0) == WaitResult::kUnknown);
  Entry& entry = table.Submit(0);
  CHECK(table.Look(0) == WaitResult::kTimeout);
  CHECK(table.Look(4) == WaitResult::kUnknown);
  CHECK(table.places.FindQuickly(0) == &entry);
  CHECK(table.places.FindQuickly(4) == nullptr);
  CHECK(table.Take({0}) == 0);
  table.End(0);
  CHECK(table.Look(0) == WaitResult::kDone);
  CHECK(table.Take({0}) == 1);
  CHECK(table.ends.empty());
  CHECK(table.Look(0) == WaitResult::kUnknown);
  CHECK(table.places.FindQuickly(0) == nullptr);
}

TEST_CASE("OperationTable: who is still there when its place is needed is found all the same") {
  Table table(2);
  Entry& first = table.Submit(0, /*plain=*/false);
  table.Submit(1);
  table.Submit(2);
  // It has lost its place, and is looked for with the lock.
  CHECK(table.places.FindQuickly(0) == nullptr);
  CHECK(table.table.Find(0) == &first);
  CHECK(table.Look(0) == WaitResult::kTimeout);
  CHECK(table.Look(2) == WaitResult::kTimeout);
  for (const std::uint64_t sequence : {0, 2}) table.End(sequence);
  CHECK(table.Look(0) == WaitResult::kDone);
  CHECK(table.Take({0, 2, 1}) == 2);
  REQUIRE(table.ends.size() == 1);
  CHECK(table.ends.front().staging_offset == 0);
  CHECK(table.Look(0) == WaitResult::kUnknown);
  CHECK(table.Look(1) == WaitResult::kTimeout);
}

TEST_CASE("OperationTable: stragglers in flight are known until they end") {
  Table table(2);
  const auto in_flight = [&] {
    std::vector<std::uint64_t> numbers;
    for (const auto& [sequence, entry] : table.table.stragglers_in_flight()) {
      numbers.push_back(sequence);
    }
    return numbers;
  };
  for (const std::uint64_t sequence : {0, 1}) table.Submit(sequence, /*plain=*/false);
  table.End(1);
  CHECK(in_flight().empty());
  for (const std::uint64_t sequence : {2, 3, 4}) table.Submit(sequence);
  CHECK(in_flight() == std::vector<std::uint64_t>{0, 2});
  table.End(2);
  CHECK(in_flight() == std::vector<std::uint64_t>{0});
  // As when its context has ended.
  table.table.Free(*table.table.Find(0), 0);
  CHECK(in_flight().empty());
}

TEST_CASE("OperationTable: entries are used again, the latest first") {
  Table table(8);
  Entry& first = table.Submit(0);
  Entry& second = table.Submit(1);
  CHECK(&first != &second);
  for (const std::uint64_t sequence : {0, 1}) table.End(sequence);
  CHECK(table.Take({0, 1}) == 2);
  CHECK(&table.Submit(2) == &second);
  CHECK(&table.Submit(3) == &first);
}

TEST_CASE("OperationTable: takes out what has ended well, up to the first that has not") {
  Table table(8);
  for (std::uint64_t sequence = 0; sequence < 5; ++sequence) table.Submit(sequence, sequence != 1);
  for (const std::uint64_t sequence : {0, 1, 2, 4}) table.End(sequence, sequence == 2 ? 10 : 0);
  CHECK(table.Take({0, 1, 2, 4}) == 2);
  REQUIRE(table.ends.size() == 1);
  CHECK(table.ends.front().staging_offset == 1);
  // The one that has failed, and the one in flight.
  CHECK(table.Take({2}) == 0);
  CHECK(table.Take({3, 4}) == 0);
  CHECK(table.Take({4}) == 1);
  // A number that no operation has, longer than a word's.
  CHECK(table.Take({~std::uint64_t{0}}) == 0);
}

TEST_CASE("OperationTable: knows whose operations have not been taken out, stragglers too") {
  Table table(2);
  const auto registration = [](std::uintptr_t number) {
    return reinterpret_cast<Registration*>(number);  // it is compared, and not looked into
  };
  const auto used = [&](std::uintptr_t number) {
    return table.table.FindUsed({registration(number)}) == registration(number);
  };
  table.Submit(0).end.registration = registration(8);
  table.Submit(1).end.registration = registration(16);
  table.Submit(2).end.registration = registration(24);
  CHECK(used(8));
  CHECK(used(16));
  CHECK(used(24));
  CHECK_FALSE(used(32));
  table.End(0);
  CHECK(used(8));
  CHECK(table.Take({0}) == 1);
  CHECK_FALSE(used(8));
}

}  // namespace
}  // namespace ringd::client
