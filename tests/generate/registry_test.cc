#include "generate/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
      EXPECT_EQ(num_ops(schedule), 2 * shape.stages * shape.micro_batches);
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
