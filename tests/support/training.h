#pragma once
// Training runs of small models on generated text, and the unpipelined model as reference.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "model/tensor_parallel.h"
#include "train/loop/trainer.h"
#include "train/setup/device.h"
#include "train/setup/prepare_job.h"
#include "transport/stream.h"
#include "transport/threads/rank_threads.h"

namespace chimera::testing {

/// A file of a few thousand words, removed at the end of the process.
inline const std::string& text_file() {
  struct File {
    std::string path = std::filesystem::temp_directory_path() / ("chimera-text-" + std::to_string(::getpid()));
    File() {
      std::ofstream out(path);
      for (int i = 0; i < 6000; ++i) out << "word" << (i * i) % 101 << (i % 13 == 0 ? ". " : " ");
    }
    ~File() { std::filesystem::remove(path); }
  };
  static const File file;
  return file.path;
}

/// For programs that end without destroying global variables; ranks forked from this process use the file until then.
inline void remove_text_file() { std::filesystem::remove(text_file()); }

/// A float64 job without clipping, so that gradients after a step are those of the loss.
inline TrainOptions small_options(const std::string& model, const std::string& schedule, const PipelineShape& shape) {
  TrainOptions options;
  options.model.name = model;
  options.model.overrides = {.layers = 8, .hidden = 16, .heads = 2};
  if (model == "llama-tiny") options.model.overrides.key_value_heads = 1;  // shared by both heads
  options.data.training = text_file();
  options.schedule.name = schedule;
  options.schedule.shape = shape;
  options.data.micro_batch_size = 2;
  options.data.sequence = 16;
  options.updates.steps = 20;
  options.numbers.dtype = DataType::Float64;
  options.updates.clip = 0;
  options.device.threads = 1;
  return options;
}

/// Bytes of an optimizer's running means and momenta on this rank.
inline std::int64_t state_bytes(const Optimizer& optimizer) {
  std::int64_t bytes = 0;
  for (const OptimizerTensor& tensor : optimizer.state()) bytes += static_cast<std::int64_t>(tensor.value.nbytes());
  return bytes;
}

/// Results of a run, over all workers.
struct Trained {
  std::vector<double> losses;  // of each step
  std::vector<double> gradient_norms;
  std::vector<std::string> parameters_hashes;                // of canonical runs
  std::vector<double> validation_losses;                     // after the last step, if enabled
  std::map<std::string, std::vector<at::Tensor>> gradients;  // by parameter, of every worker that holds it
  std::map<std::string, std::vector<at::Tensor>> parameters;
};

/// Adds a worker's gradients to the result.
inline void collect(const Trainer& trainer, Trained& trained) {
  for (const auto& [id, group] : trainer.model().groups()) {
    for (const Parameter& parameter : group->parameters()) {
      trained.gradients[parameter.name].push_back(parameter.value.grad().clone());
      trained.parameters[parameter.name].push_back(parameter.value.detach().clone());
    }
  }
}

/// Runs `steps` steps with every worker as a thread.
inline Trained train(const Job& job, std::int64_t steps) {
  const TrainOptions& options = job.options;
  std::vector<Trained> results(static_cast<std::size_t>(job.num_ranks()));
  run_rank_threads(static_cast<int>(job.num_ranks()), job.rank_groups(), [&](RankId rank, Transport& transport) {
    at::set_num_threads(1);
    const PooledStreamGuard stream(device_of(options, rank));
    Trained& result = results[rank.index()];
    Trainer trainer(job, rank, transport);
    for (std::int64_t step = 0; step < steps; ++step) {
      const StepMetrics metrics = trainer.train_step(step);
      result.losses.push_back(metrics.loss);
      result.gradient_norms.push_back(metrics.gradient_norm);
      result.parameters_hashes.push_back(metrics.parameters_hash.value_or(""));
    }
    collect(trainer, result);
    if (options.data.validate_every > 0) result.validation_losses.push_back(trainer.validation_loss());
  });
  Trained trained = std::move(results.front());
  for (std::size_t w = 1; w < results.size(); ++w) {
    for (auto& [name, tensors] : results[w].gradients) {
      for (auto& tensor : tensors) trained.gradients[name].push_back(tensor);
    }
    for (auto& [name, tensors] : results[w].parameters) {
      for (auto& tensor : tensors) trained.parameters[name].push_back(tensor);
    }
  }
  return trained;
}

/// Puts the parts of all holders of a parameter together: `parts` are those of the ranks in order.
inline std::vector<at::Tensor> wholes_of(const std::string& name, const std::vector<at::Tensor>& parts,
                                         const TensorRanks& ranks, const at::Tensor& like) {
  const auto cut = ranks.ranks == 1 ? std::nullopt : tensor_cut(name);
  if (!cut || parts.front().sizes() == like.sizes()) return parts;  // Ranks may have all heads of keys and values
  std::vector<at::Tensor> wholes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const TensorPlace place = ranks.place(RankId(static_cast<std::int64_t>(i)));
    if (place.rank == 0) wholes.push_back(at::full_like(like, -7));
    at::Tensor own = part_view(wholes.back(), *cut, place);
    own.copy_(parts[i].view(own.sizes()));
  }
  return wholes;
}

inline Trained train(const TrainOptions& options, std::int64_t steps) { return train(prepare_job(options), steps); }

/// The unpipelined run on the same samples.
inline Trained train_unpipelined(TrainOptions options, std::int64_t steps) {
  if (options.schedule.shape.micro_batches == 0) options.schedule.shape.micro_batches = options.schedule.shape.stages;
  options.schedule.name = "none";
  return train(options, steps);
}

/// |a - b| / max(|b|, 1e-6 |all b|): some gradients are mathematically zero, such as the key bias's, and have no
/// meaningful relative error of their own.
inline double relative_error(const at::Tensor& a, const at::Tensor& b, double norm_of_all) {
  const double difference = at::linalg_vector_norm(a - b).item<double>();
  return difference / std::max(at::linalg_vector_norm(b).item<double>(), 1e-6 * norm_of_all);
}

/// Expects the loss, the norm and the gradients of `expected` after one step, up to rounding, on every holder; on
/// `copies` of them if that is not 0.
inline void expect_gradients(const Trained& trained, const Trained& expected, std::size_t copies = 0) {
  EXPECT_NEAR(trained.losses[0], expected.losses[0], 1e-12 * expected.losses[0]);
  EXPECT_NEAR(trained.gradient_norms[0], expected.gradient_norms[0], 1e-12 * expected.gradient_norms[0]);
  ASSERT_EQ(trained.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    if (copies > 0) EXPECT_EQ(trained.gradients.at(name).size(), copies) << name;
    for (const at::Tensor& copy : trained.gradients.at(name))
      EXPECT_LE(relative_error(copy, gradient[0], expected.gradient_norms[0]), 1e-12) << name;
  }
}

/// Expects the losses of `expected`, up to rounding, in all steps and in validation.
inline void expect_losses(const Trained& trained, const Trained& expected) {
  ASSERT_EQ(trained.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < expected.losses.size(); ++step)
    EXPECT_NEAR(trained.losses[step], expected.losses[step], 1e-11 * expected.losses[step]) << "step " << step + 1;
  EXPECT_NEAR(trained.validation_losses.at(0), expected.validation_losses.at(0), 1e-11 * expected.validation_losses[0]);
}

/// Expects that all holders of a parameter have the same bits.
inline void expect_equal_copies(const Trained& trained, const std::string& what = "") {
  for (const auto& [name, copies] : trained.parameters) {
    for (const at::Tensor& copy : copies) EXPECT_TRUE(at::equal(copy, copies[0])) << what << ": copies of " << name;
  }
}

}  // namespace chimera::testing
