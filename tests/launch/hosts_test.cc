
#include "launch/hosts/hosts.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

std::vector<std::string> in_words(std::string_view list, int otherwise) {
  std::vector<std::string> words;
  for (const HostRanks& host : parse_hosts(list, otherwise)) words.push_back(to_text(host));
  return words;
}

TEST(HostsTest, RanksAreNumberedHostByHost) {
  EXPECT_THAT(in_words("a,b:4,me@c:1", 2), ElementsAre("ranks 0 .. 1 on a", "ranks 2 .. 5 on b", "rank 6 on me@c"));
}

TEST(HostsTest, Ipv6AddressesNeedNoRankCount) {
  EXPECT_THAT(in_words("fd00::1,[fd00::2]:3,[fd00::3]", 1),
              ElementsAre("rank 0 on fd00::1", "ranks 1 .. 3 on fd00::2", "rank 4 on fd00::3"));
}

TEST(HostsTest, RejectsInvalidHostLists) {
  for (const char* list :
       {"", "a,", ",a", "a:0", "a:x", "a:", "a:5000", ":4", "-oProxyCommand=x", "n[1-2]", "n[1-2]:4", "a, b", "[a"}) {
    EXPECT_THROW(static_cast<void>(parse_hosts(list, 1)), ConfigError) << list;
  }
  EXPECT_THAT([] { return parse_hosts("a:1,a:2", 1); }, ThrowsMessage<ConfigError>(HasSubstr("'a' twice")));
  EXPECT_THAT([] { return parse_hosts("a:0", 1, "--spare"); }, ThrowsMessage<ConfigError>(HasSubstr("--spare: 'a:0'")));
}

TEST(HostsTest, OrdersRoundTrip) {
  const AgentOrder order{.rank = 4,
                         .world_size = 8,
                         .arguments = {"train", "--data", "a \"book\"\n.txt"},
                         .variables = {{"NAME", "va\\lue"}},
                         .recovers = true};
  const std::string line = to_line(order);
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const AgentOrder read = parse_order(line);
  EXPECT_EQ(read.rank, 4);
  EXPECT_EQ(read.world_size, 8);
  EXPECT_EQ(read.arguments, order.arguments);
  EXPECT_EQ(read.variables, order.variables);
  EXPECT_TRUE(read.recovers);
  for (const char* bad : {"", "{}", "[]", "{\"host\": 1}"})
    EXPECT_THROW(static_cast<void>(parse_order(bad)), ConfigError) << bad;
}

TEST(HostsTest, CommandOnAHostQuotesItsArgumentsForTheShell) {
  const RemoteHost host{.ranks = {}, .address = "a", .program = {"ssh", "a", "cd run && exec chimera"}};
  EXPECT_THAT(command_on(host, {"train", "--data", "a b"}),
              ElementsAre("ssh", "a", "cd run && exec chimera train --data 'a b'"));
}

TEST(HostsTest, OtherHostsGetOnlyRelevantVariables) {
  ::setenv("OMP_FOR_OTHERS", "1", 1);
  ::setenv("PYTORCH_FOR_OTHERS", "2", 1);
  ::setenv("CHIMERA_MASTER_PORT", "7", 1);
  const auto variables = variables_for_others();
  ::unsetenv("OMP_FOR_OTHERS");
  ::unsetenv("PYTORCH_FOR_OTHERS");
  ::unsetenv("CHIMERA_MASTER_PORT");
  EXPECT_THAT(variables, Contains(::testing::Pair("OMP_FOR_OTHERS", "1")));
  EXPECT_THAT(variables, Contains(::testing::Pair("PYTORCH_FOR_OTHERS", "2")));
  EXPECT_THAT(variables, Not(Contains(::testing::Key("CHIMERA_MASTER_PORT"))));
  EXPECT_THAT(variables, Not(Contains(::testing::Key("PATH"))));
}

}  // namespace
}  // namespace chimera
