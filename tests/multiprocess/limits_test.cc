// Resources that a system may deny: descriptors, memory, memory files, another process's memory. A run then trains
// anyway, or ends with a line that names the resource, and leaves nothing.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "core/cgroup.h"
#include "core/error.h"
#include "core/shared_memory.h"
#include "training.h"

namespace chimera::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

void limit(__rlimit_resource resource, rlim_t value) {
  const rlimit both{value, value};
  ::setrlimit(resource, &both);
}

/// Loads a field of the system call: its number, or an argument.
sock_filter load(std::size_t offset) { return {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(offset)}; }
/// Continues if the loaded field equals `value`, otherwise skips `skipped` statements.
sock_filter require(std::uint32_t value, std::uint8_t skipped) {
  return {BPF_JMP | BPF_JEQ | BPF_K, 0, skipped, value};
}
sock_filter refuse(int error) { return {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)}; }
sock_filter allow() { return {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}; }

/// Applies the filter to this process and its children from now on.
void filter_system_calls(std::vector<sock_filter> filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/// Makes memfd_create fail.
void refuse_memory_files() {
  filter_system_calls({load(offsetof(seccomp_data, nr)), require(SYS_memfd_create, 1), refuse(EPERM), allow()});
}

/// Makes memfd_create and O_TMPFILE fail.
void refuse_nameless_files() {
  filter_system_calls({load(offsetof(seccomp_data, nr)), require(SYS_memfd_create, 1), refuse(EPERM),
                       require(SYS_openat, 3), load(offsetof(seccomp_data, args[2])),
                       require(O_TMPFILE | O_RDWR | O_CLOEXEC, 1), refuse(EOPNOTSUPP), allow()});
}

/// Prevents opening other processes' memory: only such files are opened with exactly these flags.
void refuse_memory_of_others() {
  filter_system_calls({load(offsetof(seccomp_data, nr)), require(SYS_openat, 3), load(offsetof(seccomp_data, args[2])),
                       require(O_RDWR | O_CLOEXEC, 1), refuse(EACCES), allow()});
}

Words tiny(const Scratch& scratch) {
  return small_training(scratch) + "--model gpt2-tiny --layers 4 --hidden 16 --heads 2";
}

ProgramResult run_under(const std::function<void()>& limits, const Words& arguments) {
  const ProgramResult result = ProgramRun(arguments, {.in_process = limits}).wait();
  EXPECT_EQ(result.killed_by, 0);
  expect_clean(result);
  return result;
}

TEST(TrainingLimitTest, TooFewDescriptorsAreNamedBeforeAnythingStarts) {
  for (const rlim_t most : {10, 18, 24}) {
    const Scratch scratch;
    const auto result = run_under([most] { limit(RLIMIT_NOFILE, most); }, tiny(scratch) + "--steps 1");
    EXPECT_EQ(result.exit_code, 2) << most;
    EXPECT_EQ(result.output, "") << most;
    EXPECT_THAT(complaints(result), ElementsAre(HasSubstr("the limit is " + std::to_string(most)))) << most;
  }
}

/// The number of descriptors that an error message requires.
rlim_t asked_for(const Words& arguments) {
  const ProgramResult result = run_under([] { limit(RLIMIT_NOFILE, 20); }, arguments);
  const std::string need = "need ";
  const std::size_t at = result.messages.find(need);
  EXPECT_NE(at, std::string::npos) << result.messages;
  return at == std::string::npos ? 0 : std::stoul(result.messages.substr(at + need.size()));
}

TEST(TrainingLimitTest, RequestedDescriptorsSuffice) {
  for (const Words flags : {"--stages 4", "--stages 2 --data-parallel 3 --tied true",
                            "--stages 4 --reduction canonical --shard-optimizer", "--stages 4 --transport threads"}) {
    const Scratch scratch;
    const Words arguments = tiny(scratch) + flags + "--steps 2";
    const rlim_t enough = asked_for(arguments);
    const auto result = run_under([enough] { limit(RLIMIT_NOFILE, enough); }, arguments);
    EXPECT_EQ(result.exit_code, 0) << enough << ": " << result.messages;
  }
}

TEST(TrainingLimitTest, ALowSoftLimitIsRaised) {
  const Scratch scratch;
  const auto lower = [] {
    rlimit both{};
    ::getrlimit(RLIMIT_NOFILE, &both);
    both.rlim_cur = 20;
    ::setrlimit(RLIMIT_NOFILE, &both);
  };
  succeeded(run_under(lower, tiny(scratch) + "--steps 1"));
}

std::vector<std::string> complaints_with(const Words& flags, const std::vector<std::string>& environment) {
  const Scratch scratch;
  const ProgramResult result =
      ProgramRun(tiny(scratch) + "--stages 2 --steps 1" + flags, {.environment = environment}).wait();
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  return complaints(result);
}

TEST(TrainingLimitTest, ThreadsWithoutEffectAreNamed) {
  const int cores = available_cores();
  const std::string threads = std::to_string(std::max(2, cores / 2 + 1));  // no more: other tests need the cores, too
  EXPECT_THAT(complaints_with({"--threads", threads}, {}),
              ElementsAre(HasSubstr("--threads " + threads + ": 2 times " + threads + " threads share " +
                                    std::to_string(cores) + " core")));
  EXPECT_THAT(complaints_with({}, {"OMP_NUM_THREADS=77"}),
              ElementsAre(MatchesRegex("chimera: OMP_NUM_THREADS=77 has no effect; each rank has .* thread.*, and "
                                       "--threads changes that")));
  EXPECT_THAT(complaints_with("--threads 1", {"OMP_NUM_THREADS=77"}), ElementsAre()) << "--threads was given";
}

TEST(TrainingLimitTest, NamesTooLittleMemory) {
  constexpr rlim_t kGiB = rlim_t{1} << 30;
  for (const char* transport : {"processes", "threads"}) {
    const Scratch scratch;
    const auto result = run_under(
        [] { limit(RLIMIT_AS, kGiB); },
        small_training(scratch) + split("--model gpt2-tiny --stages 2 --vocabulary 2000000 --transport {}", transport));
    EXPECT_THAT(result.exit_code, AnyOf(1, 2)) << transport << ": 2 where the machine itself has too little";
    EXPECT_THAT(complaints(result), ElementsAre(MatchesRegex("chimera: .*(memory|this machine has).*"))) << transport;
  }
}

#ifndef CHIMERA_SANITIZED  // Sanitizers reserve more
TEST(TrainingLimitTest, ALimitThatKeepsLibTorchFromLoadingIsNamed) {
  const Scratch scratch;
  const auto result = run_under([] { limit(RLIMIT_AS, rlim_t{200} << 20); }, tiny(scratch));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(complaints(result), ElementsAre(HasSubstr("a process may have 200 MiB (ulimit -v): raise it")));
}
#endif

TEST(TrainingLimitTest, UnnamedFilesReplaceMemoryFiles) {
  for (const char* transport : {"processes", "threads"}) {
    const auto metrics_under = [&](const std::function<void()>& limits) {
      const Scratch scratch;
      succeeded(run_under(limits, tiny(scratch) + split("--steps 3 --transport {}", transport)));
      return read_metrics(scratch.path("metrics.jsonl"));
    };
    const auto expected = metrics_under({});
    const auto refused = metrics_under(refuse_memory_files);
    ASSERT_EQ(expected.size(), 3U) << transport;
    ASSERT_EQ(refused.size(), 3U) << transport;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(refused[i]["loss"], expected[i]["loss"]) << transport;
  }
}

TEST(TrainingLimitTest, RefusedMemoryFilesAreNamed) {
  for (const char* transport : {"processes", "threads"}) {
    const Scratch scratch;
    const auto result = run_under(refuse_nameless_files, tiny(scratch) + Words{"--transport", transport});
    EXPECT_EQ(result.exit_code, 1) << transport;
    EXPECT_THAT(complaints(result), ElementsAre(MatchesRegex("chimera: .*make shared memory.*Operation not permitted")))
        << transport;
  }
}

/// Returns true if this process can map its parent's memory.
bool can_map(const SharedAddress& address) {
  try {
    const SharedMemory memory(address);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(LimitTest, TheFilterRefusesMemoryOfOthers) {
  const SharedMemory memory(64);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool before = can_map(memory.address());
    refuse_memory_of_others();
    ::_exit(before && !can_map(memory.address()) ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(TrainingLimitTest, GradientsUseSocketsWithoutSharedMemory) {
  const Words steps = "--steps 4 --clip 0.5 --reduction";
  const auto metrics_of = [&](const std::function<void()>& limits, const Words& flags) {
    const Scratch scratch;
    EXPECT_EQ(run_under(limits, tiny(scratch) + steps + flags).exit_code, 0);
    return read_metrics(scratch.path("metrics.jsonl"));
  };
  const Words groups = "--stages 2 --micro-batches 4 --data-parallel 2";
  const auto expected = metrics_of({}, {"canonical", "--schedule", "none", "--threads", "1", "--micro-batches", "8"});
  const auto canonical = metrics_of(refuse_memory_of_others, Words{"canonical"} + groups);
  const auto natural = metrics_of(refuse_memory_of_others, Words{"natural"} + groups);
  ASSERT_EQ(expected.size(), 4U);
  ASSERT_EQ(canonical.size(), 4U);
  ASSERT_EQ(natural.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    for (const char* field : {"loss", "grad_norm", "parameters_hash"})
      EXPECT_EQ(canonical[i][field], expected[i][field]);
    for (const char* field : {"loss", "grad_norm"}) {
      const double value = expected[i][field].get<double>();
      EXPECT_NEAR(natural[i][field].get<double>(), value, 1e-11 * value) << field << " of step " << i + 1;
    }
  }
}

/// A folder in which nothing can be made, as a read-only /tmp.
TEST(TrainingLimitTest, NamesATemporaryFolderThatCannotBeWritten) {
  const Scratch scratch;
  const ProgramResult result =
      ProgramRun(small_training(scratch) + "--model gpt2-tiny --stages 2 --steps 2",
                 {.environment = {"CHIMERA_RANK=0", "CHIMERA_WORLD_SIZE=2", "CHIMERA_LOCAL_RANK=0",
                                  "CHIMERA_LOCAL_WORLD_SIZE=2", "TMPDIR=/proc"}})
          .wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.messages, HasSubstr("the rendezvous folder '/proc/chimera-"));
  EXPECT_THAT(result.messages, HasSubstr("cannot be made, or is not of this user alone"));
  EXPECT_THAT(result.messages, HasSubstr("set TMPDIR to a folder that can be written"));
}

/// The third rank of host 17 of 1,024. It gets as far as the rendezvous, at a port on which nothing listens.
TEST(TrainingLimitTest, RanksOfOtherHostsDoNotCount) {
  const Scratch scratch;
  const ProgramResult result =
      ProgramRun(split("train --data {} --model gpt2-tiny --schedule 1f1b --stages 4 --data-parallel 1024 "
                       "--micro-batch-size 1 --sequence 16 --steps 1 --rendezvous-seconds 1",
                       scratch.write("text.txt", sample_text())),
                 {.environment = {"CHIMERA_RANK=70", "CHIMERA_WORLD_SIZE=4096", "CHIMERA_LOCAL_RANK=2",
                                  "CHIMERA_LOCAL_WORLD_SIZE=4", "CHIMERA_MASTER_ADDR=127.0.0.1",
                                  "CHIMERA_MASTER_PORT=9", "CHIMERA_SECRET=a word"}})
          .wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("rank 70 failed at start-up: no answer from the rendezvous server"));
}

/// An epoch is 21 steps. The limit leaves some ten descriptors beyond the ranks' needs.
TEST(TrainingLimitTest, ManyStepsTakeNoMoreDescriptorsNorMemoryThanAFew) {
  const std::size_t count = std::getenv("CHIMERA_LONG_TESTS") == nullptr ? 250 : 1000;
  const Scratch scratch;
  const Words model = "--model gpt2-tiny --layers 2 --hidden 8 --heads 2 --vocabulary 256";
  const Words data = split("train --data {} --metrics {} --sequence 8 --micro-batch-size 1",
                           scratch.write("text.txt", sample_text().substr(0, 400)), scratch.path("metrics.jsonl"));
  const auto result = run_under([] { limit(RLIMIT_NOFILE, 40); },
                                data + model + split("--stages 2 --steps {} --validate-every 50", count));
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  const auto steps = read_metrics(scratch.path("metrics.jsonl"));
  ASSERT_EQ(steps.size(), count);
  const auto peak = [&](std::size_t step) { return steps[step - 1]["peak_memory_bytes"].get<double>(); };
  constexpr double kMiB = 1 << 20;
  EXPECT_LE(peak(count), peak(100) + kMiB);
  EXPECT_LT(steps.back()["loss"].get<double>(), steps.front()["loss"].get<double>());
}

}  // namespace
}  // namespace chimera::testing
