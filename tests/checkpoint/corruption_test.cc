// A checkpoint with any damage to its bytes is rejected, and the previous checkpoint is used.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/sample_checkpoint.h"
#include "checkpoint/verify.h"
#include "support/scratch.h"

namespace chimera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::save_sample;
using testing::Scratch;
using ::testing::ThrowsMessage;

/// Two checkpoints; the newer is repeatedly damaged and repaired.
class CorruptionTest : public ::testing::Test {
 protected:
  CorruptionTest() {
    save_sample(real_disk(), folder_, 10);
    save_sample(real_disk(), folder_, 20);
    for (const auto& entry : fs::directory_iterator(newer_)) files_.push_back(entry.path().string());
    std::ranges::sort(files_);
  }

  [[nodiscard]] std::string pick() { return files_[random_() % files_.size()]; }

  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  /// The newer checkpoint is rejected with a line that names it, and the older checkpoint is found.
  void expect_fall_back() {
    const NewestCheckpoint newest = newest_checkpoint(folder_, 1);
    ASSERT_TRUE(newest.checkpoint.has_value());
    ASSERT_EQ(newest.checkpoint->manifest.step, 10);
    ASSERT_EQ(newest.rejected.size(), 1U);
    ASSERT_THAT(newest.rejected[0], HasSubstr(newer_));
  }

  /// Expects that the older checkpoint is found while the file has these bytes.
  void damage(const std::string& path, const std::string& bytes) {
    const std::string sound = read_file(path);
    write(path, bytes);
    expect_fall_back();
    write(path, sound);
  }

  /// Number of cases that fit into a second, or the whole campaign with CHIMERA_LONG_TESTS.
  static int cases() { return std::getenv("CHIMERA_LONG_TESTS") == nullptr ? 1'000 : 10'000; }

  Scratch scratch_;
  std::string folder_ = scratch_.path("run");
  std::string newer_ = folder_ + "/step-00000020";
  std::vector<std::string> files_;
  std::minstd_rand random_;
};

TEST_F(CorruptionTest, FlippedBits) {
  for (int i = 0; i < cases(); ++i) {
    const std::string path = pick();
    const std::string sound = read_file(path);
    std::string bytes = sound;
    const std::size_t bit = random_() % (8 * bytes.size());
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    damage(path, bytes);
    if (HasFatalFailure()) FAIL() << path << ", bit " << bit;
  }
  EXPECT_EQ(newest_checkpoint(folder_, 1).checkpoint->manifest.step, 20) << "every bit is as it was again";
}

TEST_F(CorruptionTest, Truncations) {
  for (int i = 0; i < cases(); ++i) {
    const std::string path = pick();
    const std::string sound = read_file(path);
    damage(path, sound.substr(0, random_() % sound.size()));
    if (HasFatalFailure()) FAIL() << path;
  }
}

TEST_F(CorruptionTest, ZeroedAndAppendedBytes) {
  for (int i = 0; i < cases() / 10; ++i) {
    const std::string path = pick();
    const std::string sound = read_file(path);
    std::string bytes = sound;
    if (i % 2 == 0) {
      bytes += '\0';
    } else {
      const std::size_t from = random_() % bytes.size();
      bytes.replace(from, 16, std::min<std::size_t>(16, bytes.size() - from), '\0');
      if (bytes == sound) continue;
    }
    damage(path, bytes);
    if (HasFatalFailure()) FAIL() << path;
  }
}

TEST_F(CorruptionTest, SwappedMissingAndOlderFiles) {
  for (const std::string& one : files_) {
    for (const std::string& other : files_) {
      if (one >= other) continue;
      const std::string swapped = one + ".swap";
      const auto swap = [&] {
        fs::rename(one, swapped);
        fs::rename(other, one);
        fs::rename(swapped, other);
      };
      const bool same = read_file(one) == read_file(other);
      swap();
      if (!same) expect_fall_back();
      if (HasFatalFailure()) FAIL() << one << " and " << other;
      swap();
    }
    const std::string sound = read_file(one);
    const std::string older = read_file(folder_ + "/step-00000010/" + fs::path(one).filename().string());
    if (older != sound) {
      write(one, older);
      if (one.ends_with("manifest.json")) {
        EXPECT_THROW((void)open_checkpoint(newer_, 1), CheckpointError);
      } else {
        expect_fall_back();
      }
    }
    fs::remove(one);
    expect_fall_back();
    if (HasFatalFailure()) FAIL() << one;
    write(one, sound);
  }
}

TEST_F(CorruptionTest, ValidCheckpointUnderAnotherNameIsRejected) {
  fs::rename(newer_, folder_ + "/step-00000030");
  const NewestCheckpoint newest = newest_checkpoint(folder_, 1);
  EXPECT_EQ(newest.checkpoint->manifest.step, 10);
  EXPECT_THAT(newest.rejected.at(0), HasSubstr("is a checkpoint of step 20"));
}

TEST_F(CorruptionTest, TheMessageNamesFileAndBytes) {
  const std::string path = newer_ + "/model-00002-of-00002.safetensors";
  std::string bytes = read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write(path, bytes);
  EXPECT_THAT(
      [&] { (void)find_checkpoint(newer_, 2); },
      ThrowsMessage<CheckpointError>(HasSubstr("model-00002-of-00002.safetensors: differs from its hash in the")));
}

TEST_F(CorruptionTest, ExplainsWhyNoCheckpointIsValid) {
  EXPECT_THAT([&] { (void)find_checkpoint(scratch_.path("nothing"), 1); },
              ThrowsMessage<CheckpointError>(HasSubstr("has no checkpoints")));
  for (const char* step : {"10", "20"}) fs::remove(folder_ + "/step-000000" + step + "/manifest.json");
  EXPECT_THAT([&] { (void)find_checkpoint(folder_, 1); },
              ThrowsMessage<CheckpointError>(HasSubstr("has no good checkpoint")));
}

TEST(VerifyFilesTest, FindsTheBlockOfALargeFileWithSeveralThreads) {
  const Scratch scratch;
  std::string bytes(3 * kHashBlockBytes + 7, 'x');
  BlockHasher hasher;
  hasher.add(std::as_bytes(std::span(bytes)));
  const Manifest manifest{1, nlohmann::ordered_json::object(), {{"large", bytes.size(), hasher.finish()}}};
  static_cast<void>(scratch.write("large", bytes));
  EXPECT_TRUE(verify_files(scratch.path(""), manifest, 3).empty());
  bytes[2 * kHashBlockBytes] = 'y';
  bytes.back() = 'y';
  static_cast<void>(scratch.write("large", bytes));
  const auto faults = verify_files(scratch.path(""), manifest, 3);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_THAT(faults[0].what, HasSubstr("from 8388608 on"));
}

}  // namespace
}  // namespace chimera
