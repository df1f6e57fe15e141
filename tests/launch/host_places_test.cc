// Which spare host replaces a host that does not answer.

#include "launch/hosts/host_restarts.h"

#include <gmock/gmock.h>

#include "launch/local/launcher.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Host a has ranks 0 and 1, b has rank 2, c has ranks 3 to 5. Spare host d can take one rank, e any number.
HostAssignment places() { return {parse_hosts("a:2,b:1,c:3", 1), parse_hosts("d:1,e", kMaxRanksOfHost)}; }

std::vector<std::string> in_words(const std::vector<HostRanks>& hosts) {
  std::vector<std::string> words;
  for (const HostRanks& host : hosts) words.push_back(to_text(host));
  return words;
}

TEST(HostPlacesTest, RespondingHostsKeepTheirPlace) {
  HostAssignment all = places();
  EXPECT_THAT(all.names(), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(all.assign({{"d", ""}}), IsEmpty());
  EXPECT_EQ(all.ranks(), 6);
  EXPECT_THAT(in_words(all.with_ranks(6)), ElementsAre("ranks 0 .. 1 on a", "rank 2 on b", "ranks 3 .. 5 on c"));
}

TEST(HostPlacesTest, FirstSpareWithRoomTakesThePlace) {
  HostAssignment all = places();
  EXPECT_THAT(all.assign({{"a", "No route to host"}}),
              ElementsAre("host a does not answer (No route to host); e takes its place"));
  EXPECT_THAT(in_words(all.with_ranks(6)), ElementsAre("ranks 0 .. 1 on e", "rank 2 on b", "ranks 3 .. 5 on c"));
  EXPECT_THAT(all.assign({{"a", ""}, {"b", ""}}), ElementsAre("host b does not answer; d takes its place"));
  EXPECT_EQ(all.ranks(), all.all_ranks());
}

TEST(HostPlacesTest, PlaceIsEmptyWithoutASpare) {
  HostAssignment all = places();
  EXPECT_THAT(all.assign({{"a", ""}, {"c", ""}}),
              ElementsAre("host a does not answer; e takes its place", "host c does not answer"));
  EXPECT_EQ(all.ranks(), 3);
  EXPECT_THAT(in_words(all.with_ranks(3)), ElementsAre("ranks 0 .. 1 on e", "rank 2 on b"));
  EXPECT_THAT(all.assign({{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}, {"e", ""}}),
              ElementsAre("host e does not answer", "host b does not answer"));
  EXPECT_EQ(all.ranks(), 0);
}

TEST(HostPlacesTest, ReturningHostFreesItsSpare) {
  HostAssignment all = places();
  static_cast<void>(all.assign({{"a", ""}, {"c", ""}}));
  EXPECT_THAT(all.assign({{"c", ""}}), ElementsAre("host a answers again", "e takes the place of host c"));
  EXPECT_THAT(in_words(all.with_ranks(6)), ElementsAre("ranks 0 .. 1 on a", "rank 2 on b", "ranks 3 .. 5 on e"));
}

TEST(HostPlacesTest, SpareKeepsItsPlace) {
  HostAssignment all({{"a", 0, 1}, {"b", 1, 1}}, parse_hosts("c,d", 1));
  static_cast<void>(all.assign({{"b", ""}}));
  EXPECT_THAT(all.assign({{"a", ""}, {"b", ""}}), ElementsAre("host a does not answer; d takes its place"));
  EXPECT_THAT(in_words(all.with_ranks(2)), ElementsAre("rank 0 on d", "rank 1 on c"));
  EXPECT_THAT(all.assign({{"b", ""}, {"c", ""}}),
              ElementsAre("host a answers again", "host c does not answer; d takes its place"));
}

TEST(HostPlacesTest, FewerRanksFillHostsInTheirOrder) {
  HostAssignment all = places();
  static_cast<void>(all.assign({{"b", ""}, {"d", ""}, {"e", ""}}));
  EXPECT_EQ(all.ranks(), 5);
  EXPECT_THAT(in_words(all.with_ranks(4)), ElementsAre("ranks 0 .. 1 on a", "ranks 2 .. 3 on c"));
  EXPECT_THAT(in_words(all.with_ranks(1)), ElementsAre("rank 0 on a"));
}

}  // namespace
}  // namespace chimera
