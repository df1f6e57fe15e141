#include "simulate/token_buckets.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

constexpr double kMax = 3;

TEST(TokenBucketsTest, AFullBucketGivesAllItsTokens) {
  TokenBuckets buckets(1);
  EXPECT_EQ(buckets.take(0, 10, /*time=*/2, kMax, 1), 2);
  EXPECT_EQ(buckets.take(0, 10, 2, kMax, 1), 1) << "what is left";
  EXPECT_EQ(buckets.take(0, 10, 2, kMax, 1), 0);
}

TEST(TokenBucketsTest, FillsWhileIdle) {
  TokenBuckets buckets(1);
  static_cast<void>(buckets.take(0, 0, 3, kMax, 1));
  EXPECT_EQ(buckets.take(0, 2, 3, kMax, 1), 2);
  EXPECT_EQ(buckets.take(0, 20, 5, kMax, 1), kMax) << "no more than it holds";
  buckets.begin(0, 20);
  EXPECT_EQ(buckets.take(0, 22, 5, kMax, 1), 0) << "something leaves";
  buckets.end(0, 22);
  EXPECT_EQ(buckets.take(0, 23, 5, kMax, 1), 1);
}

TEST(TokenBucketsTest, ConcurrentMessagesShareTheBucket) {
  TokenBuckets buckets(1);
  EXPECT_EQ(buckets.take(0, 0, 2, kMax, /*copies=*/2), 1.5);
  EXPECT_EQ(buckets.take(0, 0, 2, kMax, 2), 0);
}

TEST(TokenBucketsTest, EachInterfaceHasItsOwnBucket) {
  TokenBuckets buckets(2);
  buckets.empty(0);
  EXPECT_EQ(buckets.take(0, 0, 1, kMax, 1), 0);
  EXPECT_EQ(buckets.take(1, 0, 1, kMax, 1), 1);
}

}  // namespace
}  // namespace chimera
