// The limits are read from copies of the kernel's files under a temporary root.

#include "core/cgroup.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>

#include "support/scratch.h"

namespace chimera {
namespace {

constexpr double kGiB = 1 << 30;

class CgroupTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path(path)).parent_path());
    root_.write(path, text);
  }
  [[nodiscard]] std::string root() const { return root_.path(""); }

 private:
  testing::Scratch root_;
};

TEST_F(CgroupTest, WithoutControlGroupsThereAreNoLimits) {
  const CgroupLimits limits = cgroup_limits(root());
  EXPECT_TRUE(std::isinf(limits.cores) && std::isinf(limits.memory_bytes) && std::isinf(limits.swap_bytes));
  EXPECT_EQ(out_of_memory_kills(root()), std::nullopt);
  EXPECT_EQ(available_cores(root()), available_cores());
  EXPECT_TRUE(has_whole_core(root()));
}

TEST_F(CgroupTest, AFractionOfACoreIsNotAWholeCore) {  // docker run --cpus=0.5
  write("proc/self/cgroup", "0::/\n");
  write("proc/self/mountinfo", "31 1 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_FALSE(has_whole_core(root()));
  EXPECT_EQ(available_cores(root()), 1);
  write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_TRUE(has_whole_core(root()));
}

TEST_F(CgroupTest, AContainerSeesItsGroupAsTheRoot) {  // docker run --cpus=1.5 --memory=8g
  write("proc/self/cgroup", "0::/\n");
  write("proc/self/mountinfo",
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "31 1 0:28 / /sys/fs/cgroup ro,nosuid shared:9 - cgroup2 cgroup rw\n");
  write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/memory.max", "8589934592\n");
  write("sys/fs/cgroup/memory.swap.max", "0\n");
  write("sys/fs/cgroup/memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n");
  const CgroupLimits limits = cgroup_limits(root());
  EXPECT_EQ(limits.cores, 1.5);
  EXPECT_EQ(limits.memory_bytes, 8 * kGiB);
  EXPECT_EQ(limits.swap_bytes, 0);
  EXPECT_EQ(out_of_memory_kills(root()), 2U);
  EXPECT_EQ(available_cores(root()), 1);
  EXPECT_LE(available_memory_bytes(root()), 8 * kGiB);
}

TEST_F(CgroupTest, TheTightestLimitOfTheParentsCounts) {
  write("proc/self/cgroup", "0::/batch/job7/step\n");
  write("proc/self/mountinfo", "31 1 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/batch/job7/step/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/batch/job7/step/memory.max", "max\n");
  write("sys/fs/cgroup/batch/job7/cpu.max", "300000 100000\n");
  write("sys/fs/cgroup/batch/job7/memory.max", "1073741824\n");
  write("sys/fs/cgroup/batch/memory.max", "2147483648\n");
  const CgroupLimits limits = cgroup_limits(root());
  EXPECT_EQ(limits.cores, 3);
  EXPECT_EQ(limits.memory_bytes, kGiB);
  EXPECT_TRUE(std::isinf(limits.swap_bytes));
}

TEST_F(CgroupTest, VersionOneHasAHierarchyForEachController) {  // a container sees its group under the host's name
  write("proc/self/cgroup", "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n");
  write("proc/self/mountinfo",
        "40 1 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "41 1 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "42 1 0:32 /docker/abc /sys/fs/cgroup/systemd ro - cgroup cgroup rw,name=systemd\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "3221225472\n");
  write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  const CgroupLimits limits = cgroup_limits(root());
  EXPECT_EQ(limits.cores, 4);
  EXPECT_EQ(limits.memory_bytes, kGiB);
  EXPECT_EQ(limits.swap_bytes, 2 * kGiB);
  EXPECT_EQ(out_of_memory_kills(root()), 5U);
}

TEST_F(CgroupTest, VersionOneWithoutQuota) {
  write("proc/self/cgroup", "1:cpu:/\n4:memory:/\n");
  write("proc/self/mountinfo",
        "32 1 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "35 1 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_TRUE(std::isinf(cgroup_limits(root()).cores));
  EXPECT_EQ(available_memory_bytes(root()), available_memory_bytes("/nowhere")) << "all that the machine has";
}

TEST_F(CgroupTest, TheMachineCountsIfTheGroupHasNoLimit) {
  write("proc/vmstat", "nr_free_pages 1\noom_kill 11\n");
  EXPECT_EQ(out_of_memory_kills(root()), 11U);
}

TEST_F(CgroupTest, MalformedFilesSetNoLimits) {
  write("proc/self/cgroup", "0::/a/../b\nnonsense\n:\n");
  write("proc/self/mountinfo", "short\n31 1 0:28 / /sys/fs/cgroup rw - cgroup2\n31 1 0:28 / /cg rw - cgroup2 c rw\n");
  write("cg/cpu.max", "\n");
  write("cg/memory.max", "much\n");
  const CgroupLimits limits = cgroup_limits(root());
  EXPECT_TRUE(std::isinf(limits.cores) && std::isinf(limits.memory_bytes));
}

}  // namespace
}  // namespace chimera
