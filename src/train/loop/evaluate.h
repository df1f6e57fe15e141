#pragma once

// The loss of a model folder or checkpoint on a text (`chimera evaluate`), in one process without a pipeline. It reads
// the text as training does (DataTokenizer, OrderedSamples), but each window once and in order, so the result does not
// depend on batch sizes or seeds (except for BERT's masks).

#include <cstdint>
#include <functional>
#include <string>

#include "core/choices.h"

namespace chimera {

/// Options of `chimera evaluate`.
struct EvaluationOptions {
  std::string from = {};              // Hugging Face folder
  std::string data = {};              // Path for open_tokens()
  std::string tokenizer = {};         // Path for open_tokenizer(); empty: the folder's, else bytes
  std::int64_t sequence = 0;          // L, tokens per sample; at least 1
  std::int64_t micro_batch_size = 8;  // b, samples per forward; at least 1
  DataType dtype = DataType::Float32;
  bool force_bfloat16 = false;  // Allows bfloat16 on a CPU that emulates it
  std::int64_t seed = 1;        // For BERT's pairs and masks
  std::int64_t threads = 0;     // Intra-op; 0: number of cores
};

struct EvaluationProgress {
  std::int64_t windows_done = 0;
  std::int64_t windows = 0;
  std::int64_t tokens_done = 0;
  double loss = 0;  // Mean so far
  double seconds = 0;
};

struct Evaluation {
  double loss = 0;           // Mean, in nats
  std::int64_t tokens = 0;   // Targets in the mean loss
  std::int64_t windows = 0;  // OrderedSamples::count()
  std::string data = {};     // One line
};

/// Computes the mean loss over all windows (OrderedSamples), in one process: for GPT-2 and Llama, the mean over
/// targets; for BERT, the mean over masked tokens plus the mean over pairs. Sums are in float64. Calls `progress` after
/// each micro-batch.
///
/// Throws ConfigError if folder, data or tokenizer cannot be read or do not match, if the batch does not fit the model
/// or the memory, or for bfloat16 on a CPU that emulates it. Throws Error if a loss is not finite.
[[nodiscard]] Evaluation evaluate(const EvaluationOptions& options,
                                  const std::function<void(const EvaluationProgress&)>& progress);

}  // namespace chimera
