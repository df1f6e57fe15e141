// A program whose two ends disagree on the order of messages causes an error, not a wrong number.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "support/training.h"
#include "transport/threads/thread_transport.h"

namespace chimera {
namespace {

/// Worker 0 sends the output of 0F0 after the output of 0F1.
void swap_first_two_sends(std::vector<Instruction>& program) {
  const auto is_send = [](const Instruction& i) { return i.kind == InstructionKind::StartSend; };
  const auto first = std::find_if(program.begin(), program.end(), is_send);
  const auto second = std::find_if(first + 1, program.end(), is_send);
  ASSERT_NE(second, program.end());
  std::rotate(first, first + 1, second + 1);
}

/// Runs one step of a worker. Returns the message of the error that it throws.
std::string error_of(const Job& job, RankId rank, ThreadHub& hub) {
  try {
    at::set_num_threads(1);
    const auto transport = hub.transport(rank);
    Trainer(job, rank, *transport).train_step(6);
    return "";
  } catch (const Error& error) {
    hub.close("the other rank failed");
    return error.what();
  }
}

TEST(SwappedMessagesTest, AreAnErrorThatNamesBothEnds) {
  Job job = prepare_job(testing::small_options("gpt2-tiny", "gpipe", {2, 4}));
  swap_first_two_sends(job.programs.training.workers[0]);
  ThreadHub hub(2, job.run.rank_groups());
  std::string sender;
  std::thread other([&] { sender = error_of(job, RankId(0), hub); });
  const std::string receiver = error_of(job, RankId(1), hub);
  other.join();
  EXPECT_EQ(receiver,
            "rank 0 sent 0F1 of replica 0 in step 7, but rank 1 waits for 0F0 of replica 0 in step 7; both ends must "
            "follow the same program");
  EXPECT_THAT(sender, ::testing::HasSubstr("the other rank failed"));
}

}  // namespace
}  // namespace chimera
