#include "inference/sampling.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace chimera {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// The scores as float32 has them, without a graph.
at::Tensor rounded(const at::Tensor& logits) {
  at::Tensor scores = logits.detach().to(at::kCPU, at::kFloat);
  if (std::isfinite(scores.max().item<float>())) return scores;  // which is no number where one of them is none
  throw Error("the model's scores of the next token are not finite; its weights may be damaged");
}

void keep_top_k(at::Tensor& scores, std::int64_t count) {
  if (count == 0 || count >= scores.numel()) return;
  const at::Tensor least = std::get<0>(scores.topk(count)).min();
  scores.masked_fill_(scores < least, kNever);
}

/// In ascending order, tokens go while what has gone adds up to at most 1 - share.
void keep_top_p(at::Tensor& scores, double share) {
  if (share >= 1) return;
  const auto [ascending, order] = scores.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  at::Tensor goes = ascending.softmax(0).cumsum(0) <= 1 - share;
  goes[-1] = false;
  scores.masked_fill_(at::empty_like(goes).scatter_(0, order, goes), kNever);
}

}  // namespace

void require_valid(const SamplingOptions& options) {
  if (!(options.temperature >= 0 && std::isfinite(options.temperature))) {
    throw ConfigError(fmt::format("--temperature must be at least 0, not {:g}", options.temperature));
  }
  if (options.top_k < 0) throw ConfigError(fmt::format("--top-k must be at least 0 (all), not {}", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw ConfigError(fmt::format("--top-p must be above 0 and at most 1, not {:g}", options.top_p));
  }
  if (options.seed < 0) throw ConfigError(fmt::format("--seed must be at least 0, not {}", options.seed));
}

at::Tensor token_probabilities(const at::Tensor& logits, const SamplingOptions& options) {
  at::Tensor scores = rounded(logits).to(at::kDouble);
  scores = (scores - scores.max()) / options.temperature;  // so that no temperature makes them overflow
  keep_top_k(scores, options.top_k);
  keep_top_p(scores, options.top_p);
  return scores.softmax(0);
}

std::int64_t choose_token(const at::Tensor& logits, const SamplingOptions& options, double uniform) {
  if (options.temperature == 0) return rounded(logits).argmax().item<std::int64_t>();
  const at::Tensor sums = token_probabilities(logits, options).cumsum(0);
  const double total = sums[-1].item<double>();
  const at::Tensor point = at::scalar_tensor(std::min(uniform * total, std::nextafter(total, 0.0)), at::kDouble);
  return at::searchsorted(sums, point, /*out_int32=*/false, /*right=*/true).item<std::int64_t>();
}

}  // namespace chimera
