#include "simulate/token_buckets.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

constexpr double kMost = 3;

TEST(TokenBucketsTest, AFullBucketGivesAllItsTokens) {
  TokenBuckets buckets(1);
  EXPECT_EQ(buckets.take(0, 10, /*time=*/2, kMost, 1), 2);
  EXPECT_EQ(buckets.take(0, 10, 2, kMost, 1), 1) << "what is left";
  EXPECT_EQ(buckets.take(0, 10, 2, kMost, 1), 0);
}

TEST(TokenBucketsTest, FillsWhileIdle) {
  TokenBuckets buckets(1);
  static_cast<void>(buckets.take(0, 0, 3, kMost, 1));
  EXPECT_EQ(buckets.take(0, 2, 3, kMost, 1), 2);
  EXPECT_EQ(buckets.take(0, 20, 5, kMost, 1), kMost) << "no more than it holds";
  buckets.begin(0, 20);
  EXPECT_EQ(buckets.take(0, 22, 5, kMost, 1), 0) << "something leaves";
  buckets.end(0, 22);
  EXPECT_EQ(buckets.take(0, 23, 5, kMost, 1), 1);
}

TEST(TokenBucketsTest, ConcurrentMessagesShareTheBucket) {
  TokenBuckets buckets(1);
  EXPECT_EQ(buckets.take(0, 0, 2, kMost, /*copies=*/2), 1.5);
  EXPECT_EQ(buckets.take(0, 0, 2, kMost, 2), 0);
}

TEST(TokenBucketsTest, EachInterfaceHasItsOwnBucket) {
  TokenBuckets buckets(2);
  buckets.empty(0);
  EXPECT_EQ(buckets.take(0, 0, 1, kMost, 1), 0);
  EXPECT_EQ(buckets.take(1, 0, 1, kMost, 1), 1);
}

}  // namespace
}  // namespace chimera
