#include "generate/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "check/check_schedule.h"
#include "core/error.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(RegistryTest, EveryScheduleIsLegalAtEveryShape) {
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : testing::small_shapes(generator.name)) {
      const Schedule schedule = generator.generate(shape);
      const auto violations = check(schedule);
      ASSERT_TRUE(violations.empty()) << testing::describe(generator.name, shape) << ": " << violations[0].message;
      std::int64_t forwards = 0;
      for (const auto& ops : schedule.workers) {
        forwards += std::count_if(ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::Forward; });
      }
      EXPECT_EQ(forwards, schedule.stages * schedule.micro_batches);
      EXPECT_EQ(static_cast<double>(schedule.micro_batches) * schedule.micro_batch_scale, shape.micro_batches);
      EXPECT_EQ(schedule.workers.size(), static_cast<std::size_t>(shape.stages));
      EXPECT_EQ(schedule.name, generator.name);
    }
  }
}

TEST(RegistryTest, UnknownNameSaysTheNearest) {
  try {
    (void)find_generator("chimaera");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("did you mean 'chimera'?"));
  }
}

}  // namespace
}  // namespace chimera
