#include "job.h"

#include <utility>

namespace chimera::testing {
namespace {

std::vector<std::string> arguments_of(int ranks, std::vector<std::string> actions) {
  actions.insert(actions.begin(), std::to_string(ranks));
  return actions;
}

}  // namespace

Job::Job(int ranks, std::vector<std::string> actions, const std::string& fault, std::chrono::milliseconds hang)
    : run_(arguments_of(ranks, std::move(actions)),
           {.environment = {"CHIMERA_FAULT=" + fault, "LAUNCH_TEST_HANG_MS=" + std::to_string(hang.count())},
            .program = CHIMERA_LAUNCH_TEST_RANK}) {}

}  // namespace chimera::testing
