#include "optimizer_flags.h"

#include <fmt/format.h>

#include "core/error.h"
#include "options.h"

namespace chimera::apps {

void OptimizerFlags::add_to(CLI::App& app, OptimizerOptions& optimizer, LearningRate& rate) {
  add_choice(app, "--optimizer", optimizer.kind, "optimizer of the master weights (default adamw)");
  of_adam = {
      add_number(app, "--beta1", optimizer.beta1,
                 "share of the running mean of gradients that a step keeps, of adamw and lamb (default 0.9)"),
      add_number(app, "--beta2", optimizer.beta2, "the same of the squares of gradients (default 0.999)"),
      add_number(app, "--epsilon", optimizer.epsilon, "what is added to the root of the latter (default 1e-8)"),
  };
  add_number(app, "--weight-decay", optimizer.weight_decay, "decoupled weight decay (default 0.01)");
  add_choice(app, "--decay", optimizer.decayed,
             "which weights decay: matrices, which biases and norms are not; matrices without embeddings; or all "
             "(default matrices)");
  add_number(app, "--learning-rate", rate.peak, "largest learning rate, after the warm-up (default 0.001)");
  add_count(app, "--warmup", rate.warmup, "steps in which the learning rate rises linearly (default 0)");
  add_choice(app, "--learning-rate-shape", rate.shape,
             "how the learning rate then falls: along a cosine or a line; in the last steps alone (wsd: warm-up, "
             "stable, decay); or not at all (default cosine)");
  minimum_option =
      add_number(app, "--min-learning-rate", minimum, "where it falls to (default a tenth of the largest)");
  cooldown_option = add_count(app, "--cooldown", cooldown, "last steps in which wsd falls (default a tenth of all)");
  cooldown_shape_option =
      add_choice(app, "--cooldown-shape", rate.cooldown_shape, "how wsd falls in them (default linear)");
}

void OptimizerFlags::complete(const OptimizerOptions& optimizer, LearningRate& rate) const {
  if (minimum_option->count() > 0) rate.minimum = minimum;
  if (cooldown_option->count() > 0) rate.cooldown = cooldown;
  if (cooldown_shape_option->count() > 0 && rate.shape != LearningRateShape::Wsd) {
    throw ConfigError("--cooldown-shape is for --learning-rate-shape wsd");
  }
  if (optimizer.kind != OptimizerKind::Sgd) return;
  for (const CLI::Option* option : of_adam) {
    if (option->count() == 0) continue;
    throw ConfigError(fmt::format("{} means nothing to --optimizer sgd; leave it out", option->get_name()));
  }
}

}  // namespace chimera::apps
