#include "hugging_face/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <optional>

#include "core/error.h"
#include "hugging_face/config_json.h"
#include "safetensors/safetensors_file.h"
#include "support/message_of.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::Scratch;

using Tensors = std::vector<TensorEntry>;

ModelConfig small(Family family, bool tied) {
  return {.name = "small",
          .family = family,
          .layers = 2,
          .hidden = 8,
          .heads = 2,
          .feed_forward = 12,
          .vocabulary = 16,
          .positions = 10,
          .tied = tied};
}

/// A file of these tensors; the elements of each repeat the last character of its name.
std::string file_of(Tensors tensors) {
  const SafetensorsLayout layout = lay_out(std::move(tensors));
  std::string text = layout.head;
  for (const TensorEntry& tensor : layout.tensors) text += std::string(tensor.bytes, tensor.name.back());
  return text;
}

/// The folder of a model with tensors modified by `change`.
struct Folder {
  Scratch scratch;

  Folder(const ModelConfig& model, const std::function<void(Tensors&)>& change = {}) {
    Tensors tensors = exported_tensors(model, ElementType::BF16);
    if (change) change(tensors);
    scratch.write(kConfigName, to_config_json(model, ElementType::BF16));
    scratch.write(kWeightsName, file_of(std::move(tensors)));
  }
  [[nodiscard]] std::string path() const { return scratch.path(""); }
  /// Changes the last element of a tensor.
  void spoil(const std::string& tensor) const {
    const WeightFiles files(path());
    const TensorEntry entry = files.find(tensor).value().tensor;
    std::fstream file(scratch.path(kWeightsName), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(entry.begin + entry.bytes - 1));
    file.put('!');
  }
  [[nodiscard]] std::string refusal() const {
    return testing::message_of([&] { const ModelFolder folder(path()); });
  }
};

TensorEntry& named(Tensors& tensors, const std::string& name) {
  return *std::ranges::find(tensors, name, &TensorEntry::name);
}

auto without(const std::string& name) {
  return [name](Tensors& tensors) { std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; }); };
}

auto with(const TensorEntry& more) {
  return [more](Tensors& tensors) { tensors.push_back(more); };
}

std::string place_of(const Folder& folder, const std::string& parameter) {
  const ModelFolder read(folder.path());
  for (const ParameterSpec& spec : all_parameters(read.model())) {
    if (spec.name == parameter) return read.find(spec).tensor.name;
  }
  return "";
}

TEST(ModelFolderTest, AnExportNeedsTheFolderNoMore) {
  const Scratch scratch;
  std::optional<Folder> folder(small(Family::Gpt2, true));
  static_cast<void>(folder->scratch.write(kGenerationConfigName, "{\"eos_token_id\": 3}"));
  const ModelFolder source(folder->path());
  folder.reset();  // Moved away while the run trained
  StagedFolder staged(scratch.path("out"));
  add_description(staged, source.model(), &source, std::nullopt);
  EXPECT_EQ(testing::read_file(staged.path() + "/" + kGenerationConfigName), "{\"eos_token_id\": 3}");
}

TEST(ModelFolderTest, HasEveryParameterOfEveryFamily) {
  for (const Family family : {Family::Gpt2, Family::Bert, Family::Llama}) {
    for (const bool tied : {false, true}) {
      const Folder folder(small(family, tied));
      EXPECT_EQ(folder.refusal(), "");
      EXPECT_EQ(find_model_or_folder(folder.path()).tied, tied);
    }
  }
  EXPECT_EQ(place_of(Folder(small(Family::Gpt2, true)), "h.1.attn.c_attn.weight"),
            "transformer.h.1.attn.c_attn.weight");
  EXPECT_EQ(find_model_or_folder("gpt2").layers, 12);
}

TEST(ModelFolderTest, KnowsOlderNames) {
  const Folder bare(small(Family::Gpt2, false), [](Tensors& tensors) {
    for (TensorEntry& tensor : tensors) {
      if (tensor.name.starts_with("transformer.")) tensor.name.erase(0, std::string("transformer.").size());
    }
  });
  EXPECT_EQ(place_of(bare, "h.1.ln_1.weight"), "h.1.ln_1.weight");
  const Folder greek(small(Family::Bert, true), [](Tensors& tensors) {
    named(tensors, "bert.embeddings.LayerNorm.weight").name = "bert.embeddings.LayerNorm.gamma";
    named(tensors, "bert.embeddings.LayerNorm.bias").name = "bert.embeddings.LayerNorm.beta";
  });
  EXPECT_EQ(place_of(greek, "bert.embeddings.LayerNorm.bias"), "bert.embeddings.LayerNorm.beta");
  const ModelConfig untied = small(Family::Bert, false);
  EXPECT_EQ(place_of(Folder(untied), "cls.predictions.bias"), "cls.predictions.decoder.bias");
  EXPECT_EQ(place_of(Folder(untied, without("cls.predictions.decoder.bias")), "cls.predictions.bias"),
            "cls.predictions.bias");
}

TEST(ModelFolderTest, ATiedMatrixMayHaveTheNameOfTheHead) {
  const auto renamed = [](const std::string& from, const std::string& to) {
    return [=](Tensors& tensors) { named(tensors, from).name = to; };
  };
  EXPECT_EQ(
      place_of(Folder(small(Family::Gpt2, true), renamed("transformer.wte.weight", "lm_head.weight")), "wte.weight"),
      "lm_head.weight");
  EXPECT_EQ(place_of(Folder(small(Family::Llama, true), renamed("model.embed_tokens.weight", "lm_head.weight")),
                     "model.embed_tokens.weight"),
            "lm_head.weight");
  const Folder bert(small(Family::Bert, true), [](Tensors& tensors) {
    named(tensors, "bert.embeddings.word_embeddings.weight").name = "cls.predictions.decoder.weight";
    named(tensors, "cls.predictions.bias").name = "cls.predictions.decoder.bias";
  });
  EXPECT_EQ(place_of(bert, "bert.embeddings.word_embeddings.weight"), "cls.predictions.decoder.weight");
  EXPECT_EQ(place_of(bert, "cls.predictions.bias"), "cls.predictions.decoder.bias");
}

TEST(ModelFolderTest, SkipsFilesWithoutWeights) {
  const TensorEntry mask{.name = "transformer.h.0.attn.bias", .type = ElementType::U8, .shape = {1, 1, 10, 10}};
  EXPECT_EQ(Folder(small(Family::Gpt2, true), with(mask)).refusal(), "");
  const TensorEntry positions{.name = "bert.embeddings.position_ids", .type = ElementType::I64, .shape = {1, 10}};
  EXPECT_EQ(Folder(small(Family::Bert, true), with(positions)).refusal(), "");
  const TensorEntry frequencies{
      .name = "model.layers.0.self_attn.rotary_emb.inv_freq", .type = ElementType::F32, .shape = {2}};
  EXPECT_EQ(Folder(small(Family::Llama, true), with(frequencies)).refusal(), "");
}

TEST(ModelFolderTest, RejectsWeightsOfAnotherModel) {
  const ModelConfig gpt2 = small(Family::Gpt2, true);
  EXPECT_THAT(
      Folder(gpt2, without("transformer.h.1.ln_2.bias")).refusal(),
      HasSubstr("tensor 'transformer.h.1.ln_2.bias' is missing; a gpt2 model of the sizes in config.json has it"));
  EXPECT_THAT(
      Folder(gpt2, with({.name = "transformer.h.2.ln_2.bias", .type = ElementType::F32, .shape = {8}})).refusal(),
      HasSubstr("tensor 'transformer.h.2.ln_2.bias' is not part of a gpt2 model of the sizes in config.json"));
  EXPECT_THAT(Folder(gpt2,
                     [](Tensors& tensors) {
                       named(tensors, "transformer.wte.weight").shape = {15, 8};
                     })
                  .refusal(),
              HasSubstr("tensor 'transformer.wte.weight' is [15, 8], but the sizes in config.json make it [16, 8]"));
  EXPECT_THAT(
      Folder(gpt2, [](Tensors& tensors) { named(tensors, "transformer.wte.weight").type = ElementType::I8; }).refusal(),
      HasSubstr("tensor 'transformer.wte.weight' is I8; weights must be F32, F64, BF16 or F16"));
  EXPECT_THAT(Folder(small(Family::Llama, false), without("lm_head.weight")).refusal(),
              HasSubstr("tensor 'lm_head.weight' is missing"));
}

/// transformers would silently untie the model.
TEST(ModelFolderTest, ATiedModelHasOneMatrix) {
  const ModelConfig gpt2 = small(Family::Gpt2, true);
  const TensorEntry head{.name = "lm_head.weight", .type = ElementType::BF16, .shape = {16, 8}};
  EXPECT_EQ(Folder(gpt2, with(head)).refusal(), "") << "the same elements again: both names end in t";
  const auto other = [&](Tensors& tensors) {
    tensors.push_back(head);
    tensors.back().type = ElementType::F32;
  };
  EXPECT_THAT(Folder(gpt2, other).refusal(),
              HasSubstr("tie_word_embeddings is true, but tensor 'lm_head.weight' is not 'transformer.wte.weight'"));
  const Folder other_element(gpt2, with(head));
  other_element.spoil("lm_head.weight");
  EXPECT_THAT(other_element.refusal(), HasSubstr("tensor 'lm_head.weight' is not 'transformer.wte.weight'"));
  const TensorEntry bias{.name = "cls.predictions.decoder.bias", .type = ElementType::BF16, .shape = {16}};
  const Folder bert(small(Family::Bert, true), with(bias));
  EXPECT_EQ(bert.refusal(), "");
  bert.spoil("cls.predictions.decoder.bias");
  EXPECT_THAT(bert.refusal(), HasSubstr("tensor 'cls.predictions.decoder.bias' is not"));
}

/// Elements are compared block by block.
TEST(ModelFolderTest, ATiedMatrixIsComparedToItsEnd) {
  ModelConfig large = small(Family::Gpt2, true);
  large.vocabulary = 200'000;
  const Folder folder(large, with({.name = "lm_head.weight", .type = ElementType::BF16, .shape = {200'000, 8}}));
  EXPECT_EQ(folder.refusal(), "");
  folder.spoil("lm_head.weight");
  EXPECT_THAT(folder.refusal(), HasSubstr("tensor 'lm_head.weight' is not 'transformer.wte.weight'"));
}

TEST(ModelFolderTest, NeedsAConfig) {
  const Scratch scratch;
  EXPECT_THROW((void)ModelFolder(scratch.path("none")), ConfigError);
  EXPECT_THAT([&] { (void)ModelFolder(scratch.path("")); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("has no config.json")));
}

TEST(SameModelTest, FlagsMayRepeatButNotContradictTheFolder) {
  const Folder folder(small(Family::Gpt2, true));
  const ModelFolder read(folder.path());
  EXPECT_NO_THROW(require_no_contradiction(read, "", {}));
  EXPECT_NO_THROW(require_no_contradiction(read, "", {.layers = 2, .hidden = 8, .tied = true}));
  EXPECT_THAT([&] { require_no_contradiction(read, "", {.layers = 3}); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("its model has layers 2, but the flags give 3")));
  EXPECT_THAT([&] { require_no_contradiction(read, "gpt2-tiny", {}); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("its model has hidden 8, but the flags give 64")));
}

}  // namespace
}  // namespace chimera
