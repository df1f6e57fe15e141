// Muon on a rank: iterations against the polynomial of singular values, steps against the plain formula, and the same
// bits however a model stores its matrices and whoever iterates them.

#include "engine/muon.h"
#include "engine/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "model_config/matrices.h"
#include "support/logging_transport.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

at::Tensor random_matrix(std::int64_t rows, std::int64_t columns, at::ScalarType dtype = at::kDouble) {
  return at::randn({rows, columns}, at::TensorOptions(dtype));
}

/// Replaces each singular value s of X / |X| by five times p(s) = a s + b s^3 + c s^5.
at::Tensor by_singular_values(const at::Tensor& matrix) {
  auto [u, s, v] = at::linalg_svd(matrix / matrix.norm(), /*full_matrices=*/false);
  for (int i = 0; i < 5; ++i) s = 3.4445 * s - 4.7750 * s.pow(3) + 2.0315 * s.pow(5);
  return u.mm(at::diag(s)).mm(v);
}

TEST(MuonTest, IterationsApplyTheirPolynomialToSingularValues) {
  at::manual_seed(1);
  for (const auto& [rows, columns] : {std::pair(5, 5), std::pair(4, 9), std::pair(9, 4), std::pair(1, 6)}) {
    const at::Tensor matrix = random_matrix(rows, columns);
    const at::Tensor result = orthogonalized(matrix, at::kDouble);
    const at::Tensor expected = by_singular_values(matrix);
    EXPECT_LE(((rows > columns ? result.t() : result) - expected).abs().max().item<double>(), 1e-12)
        << rows << " x " << columns;
  }
}

TEST(MuonTest, IterationsOfAZeroMatrixAreZero) {
  EXPECT_EQ(orthogonalized(at::zeros({3, 4}), at::kFloat).abs().max().item<double>(), 0);
}

TEST(MuonTest, IterationsRunInTheirType) {
  at::manual_seed(2);
  const at::Tensor matrix = random_matrix(16, 24, at::kFloat);
  const at::Tensor low = orthogonalized(matrix, at::kBFloat16);
  EXPECT_EQ(low.scalar_type(), at::kBFloat16);
  const at::Tensor exact = orthogonalized(matrix.to(at::kDouble), at::kDouble);
  EXPECT_LT((low.to(at::kDouble) - exact).norm().item<double>(), 0.05 * exact.norm().item<double>());
  EXPECT_LT((orthogonalized(matrix, at::kFloat) - exact).norm().item<double>(), 1e-4);
}

/// GPT-2's names: c_attn holds three matrices, and all are stored as in x out.
std::vector<Parameter> gpt2_parameters() {
  at::manual_seed(3);
  return {{"h.0.ln_1.weight", at::randn({4}, at::kDouble)},
          {"h.0.attn.c_attn.weight", random_matrix(4, 12)},
          {"h.0.mlp.c_fc.weight", random_matrix(4, 8)},
          {"wte.weight", random_matrix(5, 4)}};
}

/// The same values with Llama's names: a parameter for each matrix, out x in.
std::vector<Parameter> llama_parameters() {
  const std::vector<Parameter> stored = gpt2_parameters();
  const auto part = [&](std::int64_t first) { return stored[1].value.narrow(1, first, 4).t().contiguous(); };
  return {{"model.layers.0.input_layernorm.weight", stored[0].value},
          {"model.layers.0.self_attn.q_proj.weight", part(0)},
          {"model.layers.0.self_attn.k_proj.weight", part(4)},
          {"model.layers.0.self_attn.v_proj.weight", part(8)},
          {"model.layers.0.mlp.up_proj.weight", stored[2].value.t().contiguous()},
          {"model.embed_tokens.weight", stored[3].value}};
}

class Group final : public ParameterGroup {
 public:
  explicit Group(std::vector<Parameter> parameters) : ParameterGroup(std::move(parameters)) {}
  void fill_gradients(int step) {
    const at::NoGradGuard no_grad;
    for (const Parameter& parameter : parameters()) {
      at::Tensor gradient = parameter.value.grad();
      gradient.copy_(at::sin(3 * parameter.value + step));
    }
  }
};

OptimizerOptions muon_options() { return {.kind = OptimizerKind::Muon, .weight_decay = 0.1}; }

std::vector<at::Tensor> values_of(const ParameterGroup& group) {
  std::vector<at::Tensor> values;
  for (const Parameter& parameter : group.parameters()) values.push_back(parameter.value.detach().clone());
  return values;
}

TEST(MuonTest, StepsAreItsFormula) {
  for (const MuonAdjust adjust : {MuonAdjust::MatchRmsAdamW, MuonAdjust::Original}) {
    Group group({{"model.layers.7.mlp.up_proj.weight", random_matrix(8, 4)}});
    OptimizerOptions options = muon_options();
    options.muon = {.momentum = 0.9, .adjust = adjust};
    const auto optimizer = make_optimizer(options, {&group});
    at::Tensor weight = values_of(group).front();
    at::Tensor momentum = at::zeros_like(weight);
    const double scale = adjust == MuonAdjust::Original ? std::sqrt(2.0) : 0.2 * std::sqrt(8.0);
    for (int step = 0; step < 5; ++step) {
      group.fill_gradients(step);
      const double factor = step % 2 == 0 ? 1 : 0.25;
      const at::Tensor gradient = group.parameters()[0].value.grad() * factor;
      momentum = 0.9 * momentum + 0.1 * gradient;
      weight = weight * (1 - 0.01 * 0.1) - 0.01 * scale * by_singular_values(0.1 * gradient + 0.9 * momentum);
      optimizer->step(0.01, factor);
      EXPECT_LE((group.parameters()[0].value - weight).abs().max().item<double>(), 1e-12) << step;
    }
  }
}

TEST(MuonTest, StorageChangesNoBit) {
  Group gpt2(gpt2_parameters());
  Group llama(llama_parameters());
  const auto first = make_optimizer(muon_options(), {&gpt2});
  const auto second = make_optimizer(muon_options(), {&llama});
  for (int step = 0; step < 3; ++step) {
    gpt2.fill_gradients(step);
    llama.fill_gradients(step);
    first->step(0.01, 0.5);
    second->step(0.01, 0.5);
  }
  const auto one = values_of(gpt2);
  const auto other = values_of(llama);
  EXPECT_TRUE(at::equal(one[1], at::cat({other[1].t(), other[2].t(), other[3].t()}, 1)));
  EXPECT_TRUE(at::equal(one[2], other[4].t()));
  EXPECT_TRUE(at::equal(one[0], other[0])) << "AdamW's";
  EXPECT_TRUE(at::equal(one[3], other[5])) << "AdamW's";
}

TEST(MuonTest, KeepsOneMomentumOfMatricesAndTwoMomentsOfOthers) {
  Group group(gpt2_parameters());
  const auto kinds_of = [&](const OptimizerOptions& options) {
    std::vector<std::string> kinds;
    for (const OptimizerTensor& tensor : make_optimizer(options, {&group})->state())
      kinds.push_back(tensor.parameter + " " + tensor.kind);
    return kinds;
  };
  OptimizerOptions options = muon_options();
  EXPECT_THAT(kinds_of(options),
              ElementsAre("h.0.attn.c_attn.weight momentum", "h.0.mlp.c_fc.weight momentum", "wte.weight first_moment",
                          "wte.weight second_moment", "h.0.ln_1.weight first_moment", "h.0.ln_1.weight second_moment"));
  options.muon.exclude = {"c_attn"};
  EXPECT_EQ(kinds_of(options).front(), "h.0.mlp.c_fc.weight momentum");
  EXPECT_EQ(kinds_of(options).size(), 7U);
}

TEST(MuonTest, MembersShareTheIterations) {
  Group group(gpt2_parameters());
  LoggingTransport transport;
  const auto optimizer =
      make_shared_muon(muon_options(), {{ParameterGroupId(0), &group}}, {{RankId(0), RankId(1)}}, RankId(0), transport);
  group.fill_gradients(0);
  optimizer->step(0.01, 1);
  // FLOPs by iteration: 4 m^2 n + 2 m^3. c_fc has 4 (16) 8 + 128 = 640, queries, keys and values 384 each.
  EXPECT_THAT(transport.lines(), ElementsAre("all-gather stage 0: 48 + 32 of [80] Double", "wait all-gather stage 0"));
  EXPECT_THAT(share_out({384, 384, 384, 640}, 2), ElementsAre(1, 1, 0, 0));
}

TEST(MuonTest, SharedIterationsChangeNoBit) {
  Group alone(gpt2_parameters());
  const auto local = make_optimizer(muon_options(), {&alone});
  for (int step = 0; step < 3; ++step) {
    alone.fill_gradients(step);
    local->step(0.01, 0.5);
  }
  for (const int members : {2, 3, 7}) {
    RankGroups groups(1);
    for (int rank = 0; rank < members; ++rank) groups[0].push_back(RankId(rank));
    run_rank_threads(members, groups, [&](RankId rank, Transport& transport) {
      at::set_num_threads(1);
      static std::mutex seeds;  // random numbers of the process
      std::unique_lock lock(seeds);
      Group group(gpt2_parameters());
      lock.unlock();
      const auto optimizer = make_shared_muon(muon_options(), {{ParameterGroupId(0), &group}}, groups, rank, transport);
      for (int step = 0; step < 3; ++step) {
        group.fill_gradients(step);
        step == 1 ? optimizer->step_alone(0.01, 0.5) : optimizer->step(0.01, 0.5);
      }
      const auto expected = values_of(alone);
      const auto actual = values_of(group);
      for (std::size_t i = 0; i < actual.size(); ++i)
        EXPECT_TRUE(at::equal(actual[i], expected[i])) << members << ' ' << alone.parameters()[i].name;
    });
  }
}

/// Gathers nothing.
class LostPeers final : public LoggingTransport {
 public:
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId, at::Tensor buffer,
                                            const std::vector<std::int64_t>&) override {
    buffer.fill_(1e9);
    return std::make_unique<Lost>();
  }

 private:
  struct Lost final : Pending {
    at::Tensor wait() override { throw Error("a peer is lost"); }
  };
};

TEST(MuonTest, AFailedGatherChangesNothing) {
  Group group(gpt2_parameters());
  Group other(gpt2_parameters());
  LostPeers transport;
  const auto shared =
      make_shared_muon(muon_options(), {{ParameterGroupId(0), &group}}, {{RankId(0), RankId(1)}}, RankId(1), transport);
  const auto local = make_optimizer(muon_options(), {&other});
  for (int step = 0; step < 2; ++step) {
    group.fill_gradients(step);
    other.fill_gradients(step);
    EXPECT_THROW(shared->step(0.01, 0.5), Error);
    shared->step_alone(0.01, 0.5);
    local->step(0.01, 0.5);
  }
  const auto expected = values_of(other);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(values_of(group)[i], expected[i])) << other.parameters()[i].name;
}

TEST(MuonTest, OwnersOfShardsHaveSimilarWork) {
  const auto owners = [](const std::vector<Parameter>& parameters) {
    return muon_owners(muon_options(), parameters, 2);
  };
  const std::vector<Parameter> parameters = llama_parameters();
  EXPECT_THAT(owners(parameters), ElementsAre(1, 1, 1, 0, 0, 1))
      << "up_proj first, then the three projections, and the others";
  const at::Tensor before = parameters[1].value;
  const OwnerScope scope(owners);
  Group group(parameters);
  EXPECT_THAT(owners_of(group, 2), ElementsAre(0, 0, 1, 1, 1, 1));
  EXPECT_EQ(group.parameters()[0].name, "model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(group.parameters()[2].name, "model.layers.0.input_layernorm.weight");
  EXPECT_TRUE(before.grad().storage().is_alias_of(group.gradients().storage()));
}

}  // namespace
}  // namespace chimera
