#include "checkpoint/manifest.h"
#include "core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Manifest sample() {
  return {
      100, {{"model", {{"layers", 2}}}}, {{"model.safetensors", 5, {hash128({})}}, {"optimizer.safetensors", 0, {}}}};
}

nlohmann::ordered_json sample_json() {
  nlohmann::ordered_json json = remove_seal("m", to_text(sample()));
  return json;
}

void expect_refused(const nlohmann::ordered_json& json, const std::string& why) {
  EXPECT_THAT([&] { (void)parse_manifest("m", add_seal(json)); }, ThrowsMessage<CheckpointError>(HasSubstr(why)))
      << why;
}

TEST(ManifestTest, RoundTrips) {
  const Manifest back = parse_manifest("m", to_text(sample()));
  EXPECT_EQ(back.step, 100);
  EXPECT_EQ(back.run, sample().run);
  EXPECT_EQ(back.files, sample().files);
}

TEST(ManifestTest, IsJsonForEverybody) {
  const auto json = read_json(to_text(sample()));
  EXPECT_EQ(json.at("format"), "chimera checkpoint");
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("xxh3_128").get<std::string>().size(), 32U);
}

TEST(ManifestTest, RejectsInvalidFields) {
  const auto with = [](const char* field, const nlohmann::ordered_json& value) {
    nlohmann::ordered_json json = sample_json();
    json[field] = value;
    return json;
  };
  expect_refused(with("format", "pickle"), "format does not name a checkpoint");
  expect_refused(with("version", 2), "version is 2, and this program reads 1");
  expect_refused(with("step", -1), "step is no count");
  expect_refused(with("step", 1e300), "step is no count");
  expect_refused(with("step", UINT64_MAX), "step is too large");
  expect_refused(with("run", 7), "run is no object");
  expect_refused(with("files", 7), "files is no list");
  expect_refused(with("files", {7}), "not an object");
  nlohmann::ordered_json json = sample_json();
  json.erase("files");
  expect_refused(json, "files is missing");
}

TEST(ManifestTest, RejectsImpossibleFiles) {
  const auto with = [](const char* field, const nlohmann::ordered_json& value) {
    nlohmann::ordered_json json = sample_json();
    json["files"][0][field] = value;
    return json;
  };
  for (const char* name : {"../x", "/etc/passwd", "", ".", "..", ".hidden", "a/b", "manifest.json"})
    expect_refused(with("name", name), "not a plain file name");
  expect_refused(with("name", std::string("a\0b", 3)), "not a plain file name");
  expect_refused(with("name", "optimizer.safetensors"), "twice");
  expect_refused(with("bytes", -5), "bytes is no count");
  expect_refused(with("bytes", UINT64_MAX), "needs 4398046511104 hashes");
  expect_refused(with("blocks", nlohmann::ordered_json::array()), "needs 1 hashes");
  expect_refused(with("blocks", {"00"}), "32 hexadecimal digits");
}

TEST(SealedJsonTest, RefusesDepth) {
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 20; ++i) deep = nlohmann::ordered_json{{"a", deep}};
  EXPECT_THAT([&] { (void)remove_seal("m", add_seal(deep)); },
              ThrowsMessage<CheckpointError>(HasSubstr("nested more than")));
}

TEST(SealedJsonTest, RefusesEveryFlippedBitAndEveryLength) {
  const std::string text = to_text(sample());
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    ASSERT_THROW((void)parse_manifest("m", flipped), CheckpointError) << "bit " << bit;
  }
  for (std::size_t length = 0; length < text.size(); ++length)
    ASSERT_THROW((void)parse_manifest("m", text.substr(0, length)), CheckpointError) << length;
  EXPECT_THROW((void)parse_manifest("m", text + " "), CheckpointError);
}

}  // namespace
}  // namespace chimera
