#include "data/sample_prefetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "text.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::string kPrefetchedText = sentences(200);

/// Micro-batches of two samples, four per step.
std::vector<BatchPosition> places_of(std::int64_t step) {
  std::vector<BatchPosition> places;
  for (std::int64_t first = 0; first < 8; first += 2) places.push_back({step, first, 2, 8});
  return places;
}

/// Makes samples whose first token encodes their place, and counts samples made by the caller and by the thread.
struct Maker {
  std::vector<Sample> operator()(const BatchPosition& place) {
    (std::this_thread::get_id() == caller ? made_by_caller : made_ahead) += 1;
    std::vector<Sample> samples(1);
    samples[0].tokens = {100 * place.step + place.first};
    return samples;
  }

  std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> made_by_caller = 0;
  std::atomic<int> made_ahead = 0;
};

TEST(SamplePrefetcherTest, GivesTheSameSamplesInAnyOrder) {
  for (const SampleKind kind : {SampleKind::NextToken, SampleKind::MaskedPairs}) {
    const Samples samples(view_of(kPrefetchedText), {.kind = kind, .sequence = 16});
    SamplePrefetcher prefetcher([&](const BatchPosition& place) { return samples_at(samples, place); });
    for (std::int64_t step = 0; step < 20; ++step) {
      prefetcher.forget_before(step);
      prefetcher.prefetch(places_of(step + 1));
      const std::vector<BatchPosition> places = places_of(step);
      for (auto place = places.rbegin(); place != places.rend(); ++place) {
        const std::vector<Sample> expected = {samples.sample_at(8 * step + place->first),
                                              samples.sample_at(8 * step + place->first + 1)};
        EXPECT_EQ(prefetcher.get(*place), expected);
        EXPECT_EQ(prefetcher.get(*place), expected) << "for another stage";
      }
    }
  }
}

TEST(SamplePrefetcherTest, MakesAnnouncedSamplesOnceOnItsThread) {
  Maker maker;
  SamplePrefetcher prefetcher(std::ref(maker));
  prefetcher.prefetch(places_of(1));
  prefetcher.prefetch(places_of(1));
  for (const BatchPosition& place : places_of(1)) EXPECT_EQ(prefetcher.get(place)[0].tokens[0], 100 + place.first);
  EXPECT_EQ(maker.made_ahead, 4);
  EXPECT_EQ(maker.made_by_caller, 0);
  (void)prefetcher.get(places_of(2)[0]);
  EXPECT_EQ(maker.made_by_caller, 1) << "not announced";
  EXPECT_EQ(prefetcher.cache_misses(), 1);
}

TEST(SamplePrefetcherTest, DropsPastSteps) {
  Maker maker;
  SamplePrefetcher prefetcher(std::ref(maker));
  for (const std::int64_t step : {1, 2}) {
    prefetcher.prefetch(places_of(step));
    for (const BatchPosition& place : places_of(step)) (void)prefetcher.get(place);
  }
  prefetcher.forget_before(2);
  for (const BatchPosition& place : places_of(2)) (void)prefetcher.get(place);
  EXPECT_EQ(maker.made_by_caller, 0);
  for (const BatchPosition& place : places_of(1)) (void)prefetcher.get(place);
  EXPECT_EQ(maker.made_by_caller, 4);
}

TEST(SamplePrefetcherTest, ReportsErrorsWhenTheSamplesAreUsed) {
  SamplePrefetcher prefetcher([](const BatchPosition& place) -> std::vector<Sample> {
    if (place.first == 2) throw ConfigError("the text ends at sample 2");
    return {Sample{}};
  });
  prefetcher.prefetch(places_of(0));
  EXPECT_NO_THROW((void)prefetcher.get(places_of(0)[0]));
  EXPECT_THAT([&] { (void)prefetcher.get(places_of(0)[1]); },
              ThrowsMessage<ConfigError>(HasSubstr("the text ends at sample 2")));
  EXPECT_NO_THROW((void)prefetcher.get(places_of(0)[3])) << "the thread goes on";
}

TEST(SamplePrefetcherTest, DestructorWaitsForSamplesInProgress) {
  std::promise<void> begun;
  std::promise<void> may_go_on;
  std::atomic<bool> is_made = false;
  std::thread other;
  {
    SamplePrefetcher prefetcher([&](const BatchPosition&) {
      begun.set_value();
      may_go_on.get_future().wait();
      is_made = true;
      return std::vector<Sample>();
    });
    prefetcher.prefetch({places_of(0)[0]});
    begun.get_future().wait();
    other = std::thread([&] { may_go_on.set_value(); });
  }
  EXPECT_TRUE(is_made);
  other.join();
}

TEST(SamplePrefetcherTest, DropsForgottenSamplesBeforeMakingThem) {
  std::promise<void> begun;
  std::promise<void> may_go_on;
  std::atomic<int> made = 0;
  SamplePrefetcher prefetcher([&](const BatchPosition&) {
    if (++made == 1) {
      begun.set_value();
      may_go_on.get_future().wait();
    }
    return std::vector<Sample>();
  });
  prefetcher.prefetch(places_of(0));
  begun.get_future().wait();
  prefetcher.forget_before(1);
  prefetcher.prefetch({places_of(1)[0]});
  may_go_on.set_value();
  (void)prefetcher.get(places_of(1)[0]);
  EXPECT_EQ(made, 2) << "the first of step 0, and of step 1";
}

/// Makes the creation of threads fail: the default stack exceeds the address space.
void refuse_threads() {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, std::size_t{1} << 47);
  ::pthread_setattr_default_np(&attributes);
}

void make_without_a_thread() {
  refuse_threads();
  Maker maker;
  SamplePrefetcher prefetcher(std::ref(maker));
  prefetcher.prefetch(places_of(0));
  (void)prefetcher.get(places_of(0)[0]);
  std::_Exit(maker.made_by_caller == 1 && maker.made_ahead == 0 ? 7 : 1);
}

// A death test, because the default attributes of threads stay changed.
TEST(SamplePrefetcherDeathTest, WithoutAThreadTheCallerMakesAll) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(make_without_a_thread(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace chimera
