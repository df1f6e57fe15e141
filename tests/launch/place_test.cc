#include "launch/local/place.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "core/error.h"
#include "launch/local/rendezvous.h"
#include "support/scratch.h"
#include "support/words.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

/// Reads NAME=VALUE for each variable.
Variables variables_of(const std::string& text) {
  Variables variables;
  for (const std::string& word : testing::Words(text))
    variables[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return variables;
}

const Variables kTorchrun = variables_of(
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none "
    "TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_USE_AGENT_STORE=True");
const Variables kOpenMpi = variables_of(
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2");
/// The last of three tasks on node n8, after two nodes with two tasks each and a node with three.
const Variables kSlurm = variables_of(
    "SLURM_PROCID=9 SLURM_NTASKS=12 SLURM_LOCALID=2 SLURM_NODEID=3 SLURM_STEP_ID=1 SLURM_JOB_ID=77 "
    "SLURM_STEP_TASKS_PER_NODE=2(x2),3(x2),2 SLURM_STEP_NODELIST=n[5-9]");
const Variables kHydra = variables_of("PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4");

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

void expect_place(const Variables& variables, LauncherKind launcher, const std::vector<int>& numbers) {
  const auto place = find_place(variables);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->launcher, launcher);
  EXPECT_EQ((std::vector<int>{place->rank, place->world_size, place->local_rank, place->local_size}), numbers);
  EXPECT_EQ(place->conflict, "");
}

void expect_refused(const Variables& variables, const std::string& why) {
  EXPECT_THAT([&] { static_cast<void>(find_place(variables)); }, ThrowsMessage<ConfigError>(HasSubstr(why)));
}

TEST(FindPlaceTest, RanksThatShareLayersAreOnOneHost) {
  const auto require = [](const Variables& variables, int count) {
    require_group_on_one_host(find_place(variables).value(), count);
  };
  EXPECT_NO_THROW(require(kTorchrun, 4));
  EXPECT_NO_THROW(require(kOpenMpi, 2));
  EXPECT_NO_THROW(require(kSlurm, 1));
  EXPECT_NO_THROW(require(kHydra, 2));
  const auto refuses = [&](const Variables& variables, int count, const std::string& why) {
    EXPECT_THAT([&] { require(variables, count); }, ThrowsMessage<ConfigError>(HasSubstr(why)));
  };
  refuses(kTorchrun, 8, "--tensor-parallel 8: ranks 0 to 7 share layers and must be on one host, but torchrun gives");
  refuses(kOpenMpi, 4, "Open MPI gives rank 3 local rank 1 of 2; start a multiple of 4 consecutive ranks on each host");
  refuses(kSlurm, 2, "ranks 8 to 9 share layers and must be on one host, but SLURM gives rank 9 local rank 2 of 3");
  refuses(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}}), 2, "rank 2 local rank 1 of 2");  // by turns over hosts
  refuses(variables_of("CHIMERA_RANK=1 CHIMERA_WORLD_SIZE=2"), 2, "CHIMERA_* gives rank 1 local rank 0 of 1");
}

TEST(FindPlaceTest, ReadsWhatEachLauncherSets) {
  expect_place(kTorchrun, LauncherKind::Torchrun, {5, 8, 1, 4});
  expect_place(kOpenMpi, LauncherKind::OpenMpi, {3, 4, 1, 2});
  expect_place(kSlurm, LauncherKind::Slurm, {9, 12, 2, 3});
  expect_place(kHydra, LauncherKind::Hydra, {1, 4, 1, 4});
  expect_place(variables_of("CHIMERA_RANK=1 CHIMERA_WORLD_SIZE=2"), LauncherKind::Variables, {1, 2, 0, 1});
  expect_place(variables_of("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1"), LauncherKind::Torchrun, {1, 2, 0, 1});
}

TEST(FindPlaceTest, ReadsTheThirdRankOfHost17Of1024) {
  const Variables many = variables_of(
      "SLURM_PROCID=70 SLURM_STEP_NUM_TASKS=4096 SLURM_LOCALID=2 SLURM_NODEID=17 SLURM_STEP_TASKS_PER_NODE=4(x1024)");
  expect_place(with(kSlurm, many), LauncherKind::Slurm, {70, 4096, 2, 4});
}

TEST(FindPlaceTest, IsEmptyWithoutALauncher) {
  EXPECT_EQ(find_place({}), std::nullopt);
  EXPECT_EQ(find_place({{"RANK", "captain"}}), std::nullopt) << "a word that others use too";
}

TEST(FindPlaceTest, OurOwnLauncherNeedsNoSecond) {
  EXPECT_EQ(find_place(with(kSlurm, variables_of("CHIMERA_LAUNCHER_PID=12 CHIMERA_RANK=0"))), std::nullopt);
}

TEST(FindPlaceTest, ShellOfABatchScriptIsNotATask) {
  Variables batch = kSlurm;
  batch.erase("SLURM_STEP_ID");
  expect_refused(batch, "SLURM_PROCID is '9'");
  batch["SLURM_PROCID"] = "0";
  EXPECT_EQ(find_place(batch), std::nullopt);
}

TEST(FindPlaceTest, AStepMayBeSmallerThanItsJob) {
  expect_place(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "11"}}), LauncherKind::Slurm, {9, 11, 2, 3});
}

TEST(FindPlaceTest, DescribesItsSource) { EXPECT_EQ(find_place(kHydra)->read, kHydra); }

TEST(FindPlaceTest, FirstOfSeveralLaunchersTakesPrecedence) {
  const Variables agent_per_node =
      with(kTorchrun,
           with(kSlurm,
                variables_of(
                    "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NODEID=1 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x2)")));
  expect_place(agent_per_node, LauncherKind::Torchrun, {5, 8, 1, 4});
  const auto one_a_host = [](const std::string& rank) {
    return Variables{{"RANK", rank}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}};
  };
  const Variables task = with(agent_per_node, one_a_host("0"));  // the agents number the hosts in their own order
  expect_place(task, LauncherKind::Torchrun, {0, 2, 0, 1});
  expect_place(with(kSlurm, variables_of("PMI_RANK=9 PMI_SIZE=12")), LauncherKind::Slurm, {9, 12, 2, 3});
  const Variables ours = variables_of("CHIMERA_RANK=3 CHIMERA_WORLD_SIZE=4");
  expect_place(with(kOpenMpi, ours), LauncherKind::Variables, {3, 4, 0, 1});
}

TEST(FindPlaceTest, ContradictoryLaunchersAreAConflict) {
  const auto conflict = [](const Variables& first, const Variables& second) {
    return find_place(with(first, second))->conflict;
  };
  EXPECT_THAT(conflict(kTorchrun, with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "9"}})),
              StartsWith("torchrun gives this process rank 5 of 8, but Open MPI gives it rank 3 of 9; start"));
  EXPECT_THAT(conflict(kOpenMpi, kHydra), HasSubstr("rank 3 of 4, but MPICH gives it rank 1 of 4"))
      << "as many, another";
  const Variables alone = variables_of("CHIMERA_RANK=0 CHIMERA_WORLD_SIZE=1");
  EXPECT_THAT(conflict(alone, kHydra), HasSubstr("rank 0 of 1")) << "four jobs at once";
  const Variables one_host = with(kTorchrun, variables_of("LOCAL_WORLD_SIZE=8 LOCAL_RANK=5"));
  EXPECT_THAT(conflict(one_host, kOpenMpi), HasSubstr("rank 5 of 8")) << "four jobs on one host each";
}

TEST(FindPlaceTest, RejectsInvalidVariables) {
  expect_refused({{"CHIMERA_RANK", "0"}}, "CHIMERA_WORLD_SIZE is not set, but CHIMERA_RANK is");
  expect_refused(with(kHydra, {{"PMI_RANK", "x1"}}), "PMI_RANK is 'x1'; expected a number, 0 or more");
  expect_refused(with(kHydra, {{"PMI_RANK", "4"}}), "MPICH gives rank 4 of 4, and rank 1 of 4 on this host; expected");
  expect_refused(with(kHydra, {{"MPI_LOCALRANKID", "-1"}}), "MPI_LOCALRANKID is '-1'");
  expect_refused(with(kHydra, {{"MPI_LOCALNRANKS", "5"}}), "of 5 on this host");
  for (const char* tasks : {"", "2(x2", "2(x2),", "2,2", "a", "2(x-1),3(x6)", "0,2(x9)"})
    expect_refused(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", tasks}}), "SLURM_STEP_TASKS_PER_NODE is");
}

TEST(FindPlaceTest, RefusesPlacesThatALauncherDoesNotTell) {
  const Variables rank_of_pmi = variables_of("PMI_RANK=1 PMI_SIZE=2");
  expect_refused(rank_of_pmi, "PMI_RANK is '1': a launcher has started this process among others");
  expect_refused({{"PMI_RANK", "1"}}, "For a job of its own, unset it (env -u PMI_RANK)");
  for (const char* variable : {"PMIX_RANK", "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK",
                               "HOROVOD_RANK", "PALS_RANKID", "ALPS_APP_PE"}) {
    expect_refused({{variable, "0"}}, fmt::format("{} is '0'", variable));
  }
  expect_refused({{"CHIMERA_WORLD_SIZE", "2"}}, "CHIMERA_RANK is not set, but CHIMERA_WORLD_SIZE is");
  expect_refused(variables_of("LOCAL_RANK=1 WORLD_SIZE=2"), "RANK is not set, but WORLD_SIZE is");
  expect_refused(variables_of("RANK=1 LOCAL_RANK=1"), "WORLD_SIZE is not set, but RANK is");
  expect_refused({{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}, "OMPI_COMM_WORLD_RANK is not set");
}

TEST(FindPlaceTest, ALauncherOfOneProcessLeavesItAlone) {
  for (const Variables& alone :
       {variables_of("PMI_RANK=0 PMI_SIZE=1"), variables_of("FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1"),
        Variables{{"CHIMERA_WORLD_SIZE", "1"}}, Variables{{"WORLD_SIZE", "4"}}}) {
    EXPECT_EQ(find_place(alone), std::nullopt);
  }
}

TEST(FindPlaceTest, PmiBesideACompleteLauncherIsNoObstacle) {
  expect_place(with(kOpenMpi, {{"PMIX_RANK", "3"}}), LauncherKind::OpenMpi, {3, 4, 1, 2});
  expect_place(with(kSlurm, variables_of("PMI_RANK=9 PMI_SIZE=12 PMIX_RANK=9")), LauncherKind::Slurm, {9, 12, 2, 3});
  expect_place(variables_of("PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4"), LauncherKind::Hydra,
               {5, 8, 1, 4});
}

TEST(LauncherVariablesTest, AreThoseOfLaunchers) {
  EXPECT_EQ(launcher_variables(variables_of("PMIX_RANK=3 HOME=/ LOCAL_RANK=1")),
            (variables_of("LOCAL_RANK=1 PMIX_RANK=3")));
}

/// TMPDIR is a scratch folder.
class RendezvousPointTest : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("TMPDIR", scratch_.path("").c_str(), 1); }
  void TearDown() override { ::unsetenv("TMPDIR"); }

  static RendezvousPoint rendezvous(const Variables& variables) {
    return rendezvous_point(*find_place(variables), variables);
  }
  [[nodiscard]] std::string folder() const { return scratch_.path("chimera-" + std::to_string(::getuid())); }

 private:
  testing::Scratch scratch_;
};

TEST_F(RendezvousPointTest, IsAFileOfThisUserOnOneHost) {
  const RendezvousPoint point = rendezvous(kHydra);
  EXPECT_EQ(std::filesystem::path(point.file).parent_path().lexically_normal(),
            std::filesystem::path(folder()).lexically_normal());
  EXPECT_EQ(rendezvous(with(kHydra, variables_of("PMI_RANK=2 MPI_LOCALRANKID=2"))).file, point.file);
  EXPECT_EQ(std::filesystem::status(folder()).permissions(), std::filesystem::perms::owner_all);
  EXPECT_FALSE(point.listens);
}

TEST_F(RendezvousPointTest, FirstRankClearsTheFile) {
  const std::string path = rendezvous(kHydra).file;
  std::ofstream(path) << "left by a start that failed";
  {
    const RendezvousFile first(path, true);
    EXPECT_FALSE(std::filesystem::exists(path));
    std::ofstream(path) << "the first one's";
    const RendezvousFile second(path, false);
    EXPECT_EQ(testing::read_file(path), "the first one's");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

TEST_F(RendezvousPointTest, RestartsUseANewRendezvous) {
  const Variables one_host = with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}});
  EXPECT_NE(rendezvous(one_host).file, rendezvous(with(one_host, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).file);
}

TEST_F(RendezvousPointTest, RejectsAFolderThatOtherUsersCanWrite) {
  std::filesystem::create_directory(folder());
  std::filesystem::permissions(folder(), std::filesystem::perms::all);
  EXPECT_THAT([] { static_cast<void>(rendezvous(kHydra)); },
              ThrowsMessage<Error>(HasSubstr("is not of this user alone")));
  std::filesystem::remove(folder());
  std::filesystem::create_directory_symlink("/tmp", folder());
  EXPECT_THAT([] { static_cast<void>(rendezvous(kHydra)); },
              ThrowsMessage<Error>(HasSubstr("is not of this user alone")));
}

TEST_F(RendezvousPointTest, IsTheAgentsServerUnderTorchrun) {
  const RendezvousPoint point = rendezvous(kTorchrun);
  EXPECT_EQ(point.file, "");
  EXPECT_EQ(point.host, "a");
  EXPECT_EQ(point.port, 29500);
  EXPECT_FALSE(point.listens);
  EXPECT_EQ(point.attempt, "none/2");
}

TEST_F(RendezvousPointTest, RankZeroListensAtTheGivenAddress) {
  const Variables told = variables_of("CHIMERA_WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=7");
  EXPECT_TRUE(rendezvous(with(told, {{"CHIMERA_RANK", "0"}})).listens);
  EXPECT_FALSE(rendezvous(with(told, {{"CHIMERA_RANK", "1"}})).listens);
  EXPECT_EQ(rendezvous(with(told, variables_of("CHIMERA_RANK=1 MASTER_ADDR=[fd00::1]"))).host, "fd00::1");
  const Variables own = variables_of("CHIMERA_RANK=1 CHIMERA_MASTER_ADDR=b CHIMERA_MASTER_PORT=9");
  EXPECT_EQ(rendezvous(with(told, own)).host, "b");
}

TEST_F(RendezvousPointTest, IsTheFirstNodeOfASlurmStep) {
  const RendezvousPoint point = rendezvous(kSlurm);
  EXPECT_EQ(point.host, "n5");
  EXPECT_EQ(point.port, 20000 + 77 * 17 + 1);
  EXPECT_NE(rendezvous(with(kSlurm, {{"SLURM_STEP_ID", "2"}})).port, point.port) << "side by side";
}

TEST_F(RendezvousPointTest, SlurmJobsHaveTheirOwnPorts) {
  std::set<std::uint16_t> ports;
  for (int job = 1; job <= 10'000; ++job)
    ports.insert(rendezvous(with(kSlurm, {{"SLURM_JOB_ID", std::to_string(job)}})).port);
  EXPECT_EQ(ports.size(), 10'000);
  EXPECT_EQ(rendezvous(with(kSlurm, {{"SLURM_JOB_ID", "4294967295"}})).port, 20000 + 4294967295 * 17 % 10000 + 1);
  EXPECT_THAT(
      [] {
        static_cast<void>(rendezvous(with(kSlurm, {{"SLURM_JOB_ID", "77x"}})));
      },
      ThrowsMessage<ConfigError>(HasSubstr("SLURM_JOB_ID is '77x'; expected a number")));
}

TEST_F(RendezvousPointTest, NamesMissingVariables) {
  const auto expect_refused = [](const Variables& variables, const std::string& why) {
    EXPECT_THAT([&] { static_cast<void>(rendezvous(variables)); }, ThrowsMessage<ConfigError>(HasSubstr(why)));
  };
  expect_refused(kOpenMpi, "Open MPI has put 2 of 4 processes on this host, and no rendezvous address is set");
  expect_refused(with(kOpenMpi, {{"CHIMERA_STORE", "file"}}),
                 "CHIMERA_STORE is a file, which only ranks of one host can use for rendezvous, but");
  expect_refused(with(kOpenMpi, {{"MASTER_ADDR", "a"}}), "MASTER_ADDR is set but MASTER_PORT is not");
  for (const char* port : {"0", "65536", "-1", "http"})
    expect_refused(with(kTorchrun, {{"MASTER_PORT", port}}), "expected a port, 1 .. 65535");
}

TEST(ExpandHostsTest, ReadsListsAsSlurmWritesThem) {
  EXPECT_THAT(expand_hosts(""), IsEmpty());
  EXPECT_THAT(expand_hosts("a"), ElementsAre("a"));
  EXPECT_THAT(expand_hosts("n[0-2,07],login,m[9-10]"), ElementsAre("n0", "n1", "n2", "n07", "login", "m9", "m10"));
  EXPECT_THAT(expand_hosts("n[008-010]"), ElementsAre("n008", "n009", "n010"));
  EXPECT_THAT(expand_hosts("n[4294967294-4294967295]"), ElementsAre("n4294967294", "n4294967295"));
}

TEST(ExpandHostsTest, RejectsOtherLists) {
  for (const char* list :
       {"n[0-2", "n[0-1]x", "[node1,node2]", "a[-]", "a[]", "a[1,]", "a[1--2]", "a[3-1]", "a[1-9999999999]",
        "a[4294967290-4294967296]", "a[0-4294967295]", ",a", "a,,b", "a, b", "a]", "a,"}) {
    EXPECT_THAT([&] { static_cast<void>(expand_hosts(list)); },
                ThrowsMessage<ConfigError>(HasSubstr(fmt::format("the node list '{}' is malformed", list))));
  }
}

}  // namespace
}  // namespace chimera
