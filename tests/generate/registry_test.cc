#include "generate/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "check/check_schedule.h"
#include "core/error.h"
#include "render/panel.h"
#include "render/text.h"
#include "schedule/schedule_json.h"
#include "support/message_of.h"
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
      EXPECT_EQ(forwards, schedule.stages * schedule.micro_batches * schedule.slices);
      EXPECT_EQ(static_cast<double>(schedule.micro_batches) * schedule.micro_batch_scale, shape.micro_batches);
      EXPECT_EQ(schedule.workers.size(), static_cast<std::size_t>(shape.stages));
      EXPECT_EQ(schedule.name, generator.name);
    }
  }
}

/// All settings of the schedule's own parameters, legal or not, for small D and N.
std::vector<PipelineShape> all_shapes(const Generator& generator) {
  std::vector<PipelineShape> shapes;
  for (std::int64_t d = 0; d <= 6; ++d) {
    for (std::int64_t n = 0; n <= 13; ++n) shapes.push_back(default_shape(generator, d, n));
  }
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    const std::int64_t most = taken.axis == Axis::Slices ? 4 : 8;  // k multiplies the ops
    const std::int64_t end = axis.is_number() ? most : static_cast<std::int64_t>(axis.names.size());
    std::vector<PipelineShape> varied;
    for (const PipelineShape& shape : shapes) {
      for (std::int64_t value = axis.is_number() ? -1 : 0; value < end; ++value)
        axis.set(varied.emplace_back(shape), value);
    }
    shapes = varied;
  }
  return shapes;
}

TEST(RegistryTest, EveryFigureIsTheGoldenFile) {
  for (const Generator& generator : generators()) {
    const Schedule schedule =
        generator.generate(default_shape(generator, generator.figure.stages, generator.figure.micro_batches));
    EXPECT_EQ(to_text(schedule, slot_timeline(schedule)), testing::golden(generator.name + ".txt")) << generator.name;
  }
}

TEST(RegistryTest, ARenamedFileHasTheSamePicture) {
  for (const Generator& generator : generators()) {
    Schedule schedule =
        generator.generate(default_shape(generator, generator.figure.stages, generator.figure.micro_batches));
    const std::string picture = to_text(schedule, slot_timeline(schedule));
    for (const char* name : {"chimera", "chimera-zb", "1f1b", "a user's own"}) {
      schedule.name = name;
      const Schedule read = schedule_from_json(to_json(schedule), "text");
      EXPECT_EQ(to_text(read, slot_timeline(read)), picture) << generator.name << " as " << name;
    }
  }
}

TEST(RegistryTest, AnEntryRefusesTheSameShapesAsItsGenerator) {
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : all_shapes(generator)) {
      const auto refusal = generator.find_shape_error(shape);
      std::string error;
      try {
        (void)generator.generate(shape);
      } catch (const ConfigError& refused) {
        error = refused.what();
      }
      EXPECT_EQ(error, refusal ? "schedule " + generator.name + ": " + *refusal : "")
          << testing::describe(generator.name, shape);
    }
  }
}

TEST(RegistryTest, AnEntryCountsTheOpsOfItsGenerator) {
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : testing::small_shapes(generator.name, 6)) {
      const Schedule schedule = generator.generate(shape);
      EXPECT_EQ(schedule.stages, shape.stages * generator.stages_per_worker(shape)) << generator.name;
      EXPECT_EQ(schedule.placement.num_replicas(), static_cast<std::size_t>(generator.replicas(shape)))
          << testing::describe(generator.name, shape);
      EXPECT_EQ(schedule.updates.has_value(), !generator.synchronous) << generator.name;
    }
  }
}

TEST(RegistryTest, UnusedParametersChangeNothing) {
  for (const Generator& generator : generators()) {
    const PipelineShape usual = default_shape(generator, 4, 8);
    for (const ShapeAxis& axis : shape_axes()) {
      if (find_axis(generator, axis.axis) != nullptr) continue;
      PipelineShape other = usual;
      axis.set(other, axis.get(usual) + 1);
      EXPECT_EQ(generator.generate(other), generator.generate(usual)) << generator.name << " takes " << axis.flag();
    }
  }
}

TEST(RegistryTest, PlannedValuesAreValid) {
  for (const Generator& generator : generators()) {
    for (const SupportedAxis& taken : generator.axes) {
      PipelineShape shape = default_shape(generator, 4, 8);
      for (const std::int64_t value : taken.planned(shape)) {
        shape_axis(taken.axis).set(shape, value);
        EXPECT_EQ(generator.find_shape_error(shape), std::nullopt) << generator.name;
      }
    }
  }
}

TEST(RegistryTest, ThePlainScheduleTakesAnyShapeAndHoldsOneStage) {
  const Generator& plain = find_generator(kPlainSchedule);
  for (std::int64_t d = 1; d <= 8; ++d) {
    for (std::int64_t n = 1; n <= 8; ++n) EXPECT_EQ(plain.find_shape_error({d, n}), std::nullopt);
  }
  EXPECT_TRUE(plain.synchronous);
  EXPECT_EQ(plain.stages_per_worker({4, 4}), 1);
  EXPECT_EQ(find_generator(kDefaultSchedule).name, kDefaultSchedule);
}

TEST(RegistryTest, AxesSetAndNameTheirOwnField) {
  PipelineShape shape;
  for (const ShapeAxis& axis : shape_axes()) {
    EXPECT_EQ(&shape_axis(axis.axis), &axis);
    axis.set(shape, 2);
    EXPECT_EQ(axis.get(shape), 2);
    EXPECT_FALSE(schedules_with(axis.axis).empty()) << axis.flag();
  }
  EXPECT_EQ(shape_axis(Axis::Scale).text(shape), "halving");
  EXPECT_EQ(shape_axis(Axis::Waves).text(shape), "2");
}

TEST(RegistryTest, UnknownNameSaysTheNearest) {
  EXPECT_THAT(testing::message_of([&] { (void)find_generator("chimaera"); }, "accepted"),
              ::testing::HasSubstr("did you mean 'chimera'?"));
}

}  // namespace
}  // namespace chimera
