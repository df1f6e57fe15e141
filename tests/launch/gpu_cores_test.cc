#include "launch/local/gpu_cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GpuCoresTest, ReadsTheKernelsLists) {
  EXPECT_THAT(*parse_core_list("0-3,8"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*parse_core_list("7,5-6"), ElementsAre(5, 6, 7));
  EXPECT_THAT(*parse_core_list("12"), ElementsAre(12));
  EXPECT_THAT(*parse_core_list(""), IsEmpty());
  for (const char* wrong : {"a", "1-", "-1", "3-1", "1,", ",1", "1 2", "1-2-3", "0-99999999", "0x1"})
    EXPECT_EQ(parse_core_list(wrong), std::nullopt) << wrong;
}

TEST(GpuCoresTest, FindsTheCoresOfADevicesNode) {
  const testing::Scratch scratch;
  const std::string device = "sys/bus/pci/devices/0000:1b:00.0/";
  std::filesystem::create_directories(scratch.path(device));
  scratch.write(device + "local_cpulist", "32-33,96-97\n");
  const std::filesystem::path root = scratch.path("");
  EXPECT_THAT(cores_near("0000:1b:00.0", root), ElementsAre(32, 33, 96, 97));
  EXPECT_THAT(cores_near("0000:1c:00.0", root), IsEmpty());
  EXPECT_THAT(cores_near("", root), IsEmpty());
  scratch.write(device + "local_cpulist", "nonsense\n");
  EXPECT_THAT(cores_near("0000:1b:00.0", root), IsEmpty());
}

/// Restores the cores that this thread may use.
class KeptAffinity {
 public:
  KeptAffinity() { (void)::sched_getaffinity(0, sizeof mask, &mask); }
  KeptAffinity(const KeptAffinity&) = delete;
  KeptAffinity& operator=(const KeptAffinity&) = delete;
  ~KeptAffinity() { (void)::sched_setaffinity(0, sizeof mask, &mask); }
  cpu_set_t mask{};
};

std::vector<int> own_cores() {
  const KeptAffinity now;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &now.mask)) cores.push_back(core);
  }
  return cores;
}

TEST(GpuCoresTest, BindsOnlyAProcessThatMayUseAllCores) {
  const KeptAffinity kept;
  const std::vector<int> all = own_cores();
  const bool may_bind = bind_to_cores({all.front()});
  EXPECT_EQ(own_cores(), may_bind ? std::vector<int>{all.front()} : all);
  if (all.size() < 2) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(all.back(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);  // As a launcher does
  EXPECT_FALSE(bind_to_cores({all.front()}));
  EXPECT_EQ(own_cores(), std::vector<int>{all.back()});
}

TEST(GpuCoresTest, WarnsBelowFourCoresARank) {
  EXPECT_EQ(warning_of_few_cores(16, 4), "");
  EXPECT_THAT(warning_of_few_cores(15, 4), HasSubstr("4 ranks on 15 cores: each needs 4"));
  EXPECT_THAT(warning_of_few_cores(1, 1), HasSubstr("1 rank on 1 core:"));
}

}  // namespace
}  // namespace chimera
