#include "job.h"

namespace chimera::testing {

Job::Job(const Words& actions, const std::string& fault, std::chrono::milliseconds hang)
    : run_(std::to_string(actions.size()) + actions,
           {.environment = {"CHIMERA_FAULT=" + fault, "LAUNCH_TEST_HANG_MS=" + std::to_string(hang.count())},
            .program = CHIMERA_LAUNCH_TEST_RANK}) {}

}  // namespace chimera::testing
