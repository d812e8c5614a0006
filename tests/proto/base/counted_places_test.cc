#include "proto/base/counted_places.h"

#include <catch2/catch.hpp>
#include <vector>

namespace ringd {
namespace {

TEST_CASE("CountedPlaces: so many at once, and a place that was given back is free") {
  CountedPlaces places(3);
  std::vector<CountedPlaces::Place> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(places.Take());
  for (const auto& place : taken) CHECK(place != nullptr);
  CHECK(places.Take() == nullptr);
  CHECK(places.Take(0) != nullptr);
  taken.pop_back();
  CHECK(places.Take() != nullptr);
}

TEST_CASE("CountedPlaces: amounts count together, and any one alone has its place") {
  CountedPlaces places(100);
  CountedPlaces::Place first = places.Take(60);
  CHECK(first != nullptr);
  CHECK(places.Take(41) == nullptr);
  CHECK(places.Take(40) != nullptr);
  first.reset();
  CHECK(places.Take(1000) != nullptr);
}

TEST_CASE("CountedPlaces: places may outlive it") {
  CountedPlaces::Place place;
  {
    CountedPlaces places(1);
    place = places.Take();
  }
  CHECK(place != nullptr);
}

}  // namespace
}  // namespace ringd
