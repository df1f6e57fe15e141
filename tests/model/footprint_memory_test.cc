// Compares the memory predictions of model_config/footprint.h with the allocations of real stages.

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/masked_tokens.h"
#include "model/layers.h"
#include "model/linear.h"
#include "model/make_stage.h"
#include "model/tensor_parallel.h"
#include "model_config/config.h"
#include "model_config/footprint.h"
#include "runtime/memory_meter.h"

namespace chimera {
namespace {

/// The first of T ranks; the others compute nothing.
class OneRankOfAGroup final : public TensorGroup {
 public:
  using TensorGroup::TensorGroup;
  void sum(const at::Tensor& /*values*/) override {}
  std::vector<at::Tensor> exchange(const at::Tensor& values) override {
    return std::vector<at::Tensor>(static_cast<std::size_t>(place().ranks), values);
  }
};

/// A stage and its workload.
struct Case {
  std::string what;
  ModelConfig config;
  StageLayers stage;
  Workload workload;
};

at::ScalarType compute_type(const Workload& workload) {
  if (workload.compute_bytes == 2) return at::kBFloat16;
  return workload.compute_bytes == 8 ? at::kDouble : at::kFloat;
}

/// Runs a stage's ops as the executor does, and measures all sizes.
class MeasuredStage {
 public:
  explicit MeasuredStage(const Case& measured) : case_(measured) {
    stage_ = make_tied_and_own();
    make_tables();
    memory_.weights = live();  // with their gradients
    for (const bool defers : {false, true}) run(defers);
  }

  [[nodiscard]] const StageMemory& memory() const { return memory_; }
  [[nodiscard]] double working_set(OpKind kind) const { return working_sets_[static_cast<std::size_t>(kind)]; }

 private:
  std::unique_ptr<Stage> make_tied_and_own() {
    const at::ScalarType type = compute_type(case_.workload);
    if (!case_.config.tied || !(case_.stage.embedding || case_.stage.head))
      return make_stage(case_.config, case_.stage, type, initial_values_of(1), {}, at::kCPU, group());
    tied_ = make_tied_weight(case_.config, {case_.stage.embedding, case_.stage.head}, type, initial_values_of(1),
                             at::kCPU, group());
    return make_stage(case_.config, case_.stage, type, initial_values_of(1), tied_->leaves(), at::kCPU, group());
  }

  /// Makes the stage compute what it caches in its first forward: the tables of rotary positions.
  void make_tables() {
    const at::NoGradGuard no_graph;
    (void)stage_->forward(case_.stage.embedding ? at::Tensor() : boundary(), load());
  }

  [[nodiscard]] TensorGroup* group() { return case_.workload.tensor_parallel > 1 ? &group_ : nullptr; }
  [[nodiscard]] double live() const { return static_cast<double>(meter_.usage(RankId(0)).live); }

  MicroBatch load() const {
    MicroBatch batch;
    const bool causal = is_causal(case_.config.family);
    const std::vector<std::int64_t> shape = {case_.workload.micro_batch_size, case_.workload.sequence};
    if (case_.workload.dropout) batch.dropout.probability = 0.1;
    if (case_.workload.split_documents) {
      batch.documents = at::zeros(shape, at::kLong);
      batch.documents.select(1, shape[1] - 1).fill_(1);  // the costliest cut
    }
    if (causal && !case_.stage.embedding && !case_.stage.head) return batch;
    batch.tokens = at::zeros(shape, at::kLong);
    batch.targets = at::zeros(shape, at::kLong);
    if (causal) return batch;
    batch.targets.narrow(1, masked_count(shape[1]), shape[1] - masked_count(shape[1])).fill_(kIgnored);
    batch.token_types = at::zeros(shape, at::kLong);
    batch.next_sentence = at::zeros({shape.front()}, at::kLong);
    return batch;
  }

  at::Tensor boundary() const {
    const std::int64_t tokens = case_.workload.sequence / (group_.cuts_tokens() ? case_.workload.tensor_parallel : 1);
    return at::zeros({case_.workload.micro_batch_size, tokens, case_.config.hidden}, compute_type(case_.workload));
  }

  /// Runs the op and records its working memory and, after a forward, the memory that it keeps. Returns the memory that
  /// remains.
  template <class Op>
  double measure(OpKind kind, Op&& op) {
    const double before = static_cast<double>(meter_.take_sample(RankId(0)).live);
    op();
    const MemorySample after = meter_.take_sample(RankId(0));
    working_sets_[static_cast<std::size_t>(kind)] =
        static_cast<double>(after.peak) - (kind == OpKind::Forward ? static_cast<double>(after.live) : before);
    return static_cast<double>(after.live);
  }

  void run(bool defers) {
    const double between_steps = live();
    at::Tensor input;
    if (!case_.stage.embedding) input = boundary().requires_grad_();
    at::Tensor output;
    auto queue = c10::make_intrusive<WeightGradients>();
    const double after_forward = measure(OpKind::Forward, [&] {
      const WeightGradients::Scope scope(queue);
      output = stage_->forward(input, load());
    });
    memory_.activations = after_forward - between_steps;
    if (defers) queue->defer();
    at::Tensor gradient;
    if (!case_.stage.head) gradient = boundary();
    at::Tensor passed_back;
    const double after_backward = measure(defers ? OpKind::BackwardInput : OpKind::Backward, [&] {
      torch::autograd::backward({std::exchange(output, {})}, {std::exchange(gradient, {})});
      if (!case_.stage.embedding) passed_back = std::exchange(input, {}).grad();
    });
    memory_.boundary = passed_back.defined() ? static_cast<double>(passed_back.nbytes()) : 0;
    if (!defers) return;
    memory_.deferred = after_backward - between_steps - memory_.boundary;
    passed_back.reset();
    measure(OpKind::BackwardWeight, [&] { queue->run(); });
  }

  const Case& case_;
  OneRankOfAGroup group_{
      TensorPlace{0, case_.workload.tensor_parallel, head_groups(case_.config, case_.workload.tensor_parallel)},
      case_.workload.tensor_parallel > 1 && case_.workload.cuts_tokens};
  mutable MemoryMeter meter_{1};
  MemoryMeter::Recording recording_{meter_, RankId(0)};
  std::unique_ptr<TiedWeight> tied_;
  std::unique_ptr<Stage> stage_;
  StageMemory memory_;
  std::array<double, 4> working_sets_ = {};
};

/// All families as they are; tied with a large vocabulary; with one head and a narrow feed-forward sub-layer. Also a
/// Llama with biases, norms of the heads and a separate head width.
std::vector<ModelConfig> configs() {
  std::vector<ModelConfig> result;
  for (const char* name : {"gpt2-tiny", "bert-tiny", "llama-tiny"}) {
    result.push_back(find_model(name));
    result.push_back(with_overrides(find_model(name), {.vocabulary = 1000, .tied = true}));
    ModelConfig narrow = find_model(name);
    narrow.heads = 1;
    narrow.feed_forward = 96;
    narrow.key_value_heads.reset();
    result.push_back(narrow);
  }
  ModelConfig llama = find_model("llama-tiny");
  llama.head_size = 24;
  llama.attention_bias = AttentionBias::All;
  llama.feed_forward_bias = llama.query_key_norm = true;
  result.push_back(llama);
  return result;
}

std::string words_of(const ModelConfig& config, const StageLayers& stage, const Workload& workload) {
  return fmt::format("{}{}, {} heads, blocks {} to {}{}{}, b = {}, L = {}, {} bytes{}", config.name,
                     config.tied ? " tied" : "", config.heads, stage.first_layer, stage.end_layer,
                     stage.embedding ? ", embedding" : "", stage.head ? ", head" : "", workload.micro_batch_size,
                     workload.sequence, workload.compute_bytes, workload.dropout ? ", dropout" : "") +
         fmt::format(", blocks at levels {}", fmt::join(stage.levels.counts, ","));
}

/// Calls visit(case) for the first stage, an inner one, the last, and a single stage of all layers.
template <class Visit>
void for_each_case(const std::vector<std::int64_t>& element_bytes, Visit&& visit) {
  at::set_num_threads(1);  // kernels' scratch memory grows with threads
  for (const ModelConfig& config : configs()) {
    for (const StageLayers& stage : {StageLayers{0, 2, true, false}, StageLayers{1, 3, false, false},
                                     StageLayers{3, 4, false, true}, StageLayers{0, 4, true, true}}) {
      for (const auto& [b, length] : {std::pair{1, 40}, std::pair{3, 72}}) {
        for (const bool dropout : {false, true}) {
          for (const std::int64_t bytes : element_bytes) {
            const Workload workload{.micro_batch_size = b,
                                    .sequence = length,
                                    .compute_bytes = bytes,
                                    .weight_bytes = std::max<std::int64_t>(bytes, 4),
                                    .dropout = dropout};
            visit(Case{words_of(config, stage, workload), config, stage, workload});
          }
        }
      }
    }
  }
}

/// Upper bound of memory that the prediction omits: zeros that align each gradient to 64 bytes, scalars such as the
/// loss, and header room that a transport of this process may have reserved before each tensor.
double left_out() {
  constexpr double kTensors = 200;  // of a stage
  MemoryMeter meter(1);
  const MemoryMeter::Recording recording(meter, RankId(0));
  const at::Tensor number = at::empty({1});
  const auto room = static_cast<double>(meter.usage(RankId(0)).live - static_cast<std::int64_t>(number.nbytes()));
  return 256 + kTensors * room;
}

void expect_to_keep_what_is_said(const Case& example, const MeasuredStage& stage, double tolerance) {
  const StageMemory said = stage_footprint(example.config, example.stage, example.workload).memory;
  const StageMemory& measured = stage.memory();
  EXPECT_NEAR(measured.weights, said.weights + said.gradients, tolerance) << example.what;
  EXPECT_NEAR(measured.activations, said.activations, tolerance) << example.what;
  EXPECT_NEAR(measured.deferred.value(), said.deferred.value(), tolerance) << example.what;
  EXPECT_EQ(measured.boundary, said.boundary) << example.what;
}

void expect_working_sets_as_said(const Case& example, const MeasuredStage& measured) {
  const StageFootprint said = stage_footprint(example.config, example.stage, example.workload);
  for (const OpKind kind : {OpKind::Forward, OpKind::Backward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
    const double bytes = measured.working_set(kind);
    EXPECT_NEAR(bytes, said.working_set(kind), 0.15 * bytes + 64) << letter(kind) << " of " << example.what;
  }
}

TEST(FootprintMemoryTest, PredictionsMatchTheAllocator) {
  const double tolerance = left_out();
  for_each_case({4, 8, 2}, [tolerance](const Case& example) {
    const MeasuredStage measured(example);
    expect_to_keep_what_is_said(example, measured, tolerance);
    // In bfloat16 the scratch memory of products depends on the CPU.
    if (example.workload.compute_bytes != 2) expect_working_sets_as_said(example, measured);
  });
}

TEST(FootprintMemoryTest, BlocksShareTheLimitsOfDocuments) {
  at::set_num_threads(1);
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    for (const StageLayers& stage : {StageLayers{0, 2, true, false}, StageLayers{1, 3, false, false},
                                     StageLayers{3, 4, false, true}, StageLayers{0, 4, true, true}}) {
      for (const bool dropout : {false, true}) {
        for (const bool recomputes : {false, true}) {
          const ModelConfig config = find_model(name);
          const Workload workload{.micro_batch_size = 3, .sequence = 72, .dropout = dropout, .split_documents = true};
          StageLayers again = stage;
          if (recomputes) again.levels[RecomputeLevel::Attention] = stage.blocks();
          const Case example{words_of(config, again, workload), config, again, workload};
          const MeasuredStage measured(example);
          expect_to_keep_what_is_said(example, measured, left_out());
          if (!recomputes) expect_working_sets_as_said(example, measured);
        }
      }
    }
  }
}

/// The working sets may be less exact than without recomputation, but not the peak memory of an op.
void expect_peaks_as_said(const Case& example, const MeasuredStage& measured) {
  const StageFootprint said = stage_footprint(example.config, example.stage, example.workload);
  for (const OpKind kind : {OpKind::Forward, OpKind::Backward, OpKind::BackwardInput}) {
    const double kept = measured.memory().activations;
    const double bytes = kept + measured.working_set(kind);
    EXPECT_NEAR(bytes, kept + said.working_set(kind), 0.2 * bytes) << letter(kind) << " of " << example.what;
  }
}

/// All blocks at each level, and a block at each level from the highest on.
std::vector<BlockLevels> levels_of(const StageLayers& stage) {
  std::vector<BlockLevels> all;
  for (const RecomputeLevel level : kRecomputeLevels) all.push_back(BlockLevels::at(level, stage.blocks()));
  BlockLevels& mixed = all.emplace_back();
  for (auto level = kRecomputeLevels.rbegin(); level != kRecomputeLevels.rend(); ++level)
    mixed[*level] = mixed.all() < stage.blocks() ? 1 : 0;
  return all;
}

// Recomputed blocks have suites of their own: CTest limits the time of a suite, and these tests measure more stages.
TEST(RecomputedMemoryTest, BlocksKeepWhatTheirLevelSays) {
  const double tolerance = left_out();
  for_each_case({4, 8, 2}, [tolerance](Case example) {
    const double whole = stage_footprint(example.config, example.stage, example.workload).memory.activations;
    for (const BlockLevels& levels : levels_of(example.stage)) {
      example.stage.levels = levels;
      example.what = words_of(example.config, example.stage, example.workload);
      EXPECT_LT(stage_footprint(example.config, example.stage, example.workload).memory.activations, whole);
      const MeasuredStage measured(example);
      expect_to_keep_what_is_said(example, measured, tolerance);
      if (example.workload.compute_bytes != 2) expect_peaks_as_said(example, measured);
    }
  });
}

TEST(RecomputedMemoryTest, CheapLevelFreesAQuarterOfABlockOfLlama) {
  const ModelConfig config = find_model("llama-3-8b");
  const Workload workload = workload_of(DataType::BFloat16, OptimizerKind::AdamW, 8192);
  const double whole = layer_footprint(config, LayerKind::Block, workload).activations;
  EXPECT_LT(layer_footprint(config, LayerKind::Block, workload, RecomputeLevel::Cheap).activations, 0.75 * whole);
}

/// With T = 2 and 4, tokens cut or whole. T = 4 divides neither heads nor width of the model with a head size.
template <class Visit>
void for_each_split_case(Visit&& visit) {
  for_each_case({4, 2}, [&](Case example) {
    ModelConfig& config = example.config;
    for (const std::int64_t ranks : {2, 4}) {
      if (ranks == 4 && config.head_size) {
        config.heads = 7;
        config.key_value_heads = 7;
        config.head_size = 16;
        config.feed_forward = 97;
      }
      if (key_value_heads_of(config) < ranks) continue;
      for (const bool cuts : {false, true}) {
        example.workload.tensor_parallel = ranks;
        example.workload.cuts_tokens = cuts;
        Case split = example;
        split.what += fmt::format(", T = {}{}", ranks, cuts ? ", tokens cut" : "");
        visit(split);
      }
    }
  });
}

TEST(FootprintMemoryTest, ARankOfSplitLayersKeepsItsPart) {
  const double tolerance = 1024 + left_out();  // gaps between small parts
  for_each_split_case([tolerance](const Case& example) {
    const MeasuredStage measured(example);
    expect_to_keep_what_is_said(example, measured, tolerance);
    if (example.workload.compute_bytes != 2) expect_peaks_as_said(example, measured);
  });
}

TEST(RecomputedPartsMemoryTest, ARankOfSplitLayersKeepsItsPart) {
  const double tolerance = 1024 + left_out();  // gaps between small parts
  for_each_split_case([tolerance](Case example) {
    for (const RecomputeLevel level : kRecomputeLevels) {
      example.stage.levels = BlockLevels::at(level, example.stage.blocks());
      const std::string what = std::exchange(example.what, example.what + ", blocks at " + to_text(level));
      const MeasuredStage measured(example);
      expect_to_keep_what_is_said(example, measured, tolerance);
      if (example.workload.compute_bytes != 2) expect_peaks_as_said(example, measured);
      example.what = what;
    }
  });
}

// Two chunks of tokens: while the last chunk is processed, no gradients of logits are kept.
TEST(FootprintMemoryTest, LargeVocabularyKeepsOneChunkOfLogits) {
  at::set_num_threads(1);
  const ModelConfig config = with_overrides(find_model("gpt2-tiny"), {.vocabulary = 100'000});
  const StageLayers stage{3, 4, false, true};
  const Workload workload{.micro_batch_size = 3, .sequence = 72};
  const Case example{words_of(config, stage, workload), config, stage, workload};
  EXPECT_LT(stage_footprint(config, stage, workload).memory.activations, 0.6 * 4 * 216 * 100'000);
  const MeasuredStage measured(example);
  expect_to_keep_what_is_said(example, measured, left_out());
  expect_working_sets_as_said(example, measured);
}

}  // namespace
}  // namespace chimera
