#pragma once

// Computes the loss of a model folder or checkpoint on a text (`chimera evaluate`), in one process without a pipeline.
// The text is tokenized as in training and cut into *windows*, one per sample. Each window is used once and in order,
// so the result does not depend on batch sizes or seeds (except for BERT's pairs and masks).

#include <functional>

#include "core/choices.h"

namespace chimera {

/// Options of `chimera evaluate`.
struct EvaluationOptions {
  std::string from = {};              // Hugging Face folder of the model; a checkpoint is one, too
  std::string data = {};              // Text or token file, or a folder of such files (data/open_tokens.h)
  std::string tokenizer = {};         // Argument of open_tokenizer(); empty: the model folder's tokenizer, else bytes
  std::int64_t sequence = 0;          // Tokens per sample; at least 1
  std::int64_t micro_batch_size = 8;  // Samples per forward; at least 1
  DataType dtype = DataType::Float32;
  bool force_bfloat16 = false;  // Allows bfloat16 on a CPU that emulates it
  std::int64_t seed = 1;        // For BERT's pairs and masks
  std::int64_t threads = 0;     // Intra-op; 0: number of cores
};

/// State of an evaluation.
struct EvaluationProgress {
  std::int64_t windows_done = 0;
  std::int64_t windows = 0;  // All windows of the text
  std::int64_t tokens_done = 0;
  double loss = 0;     // Mean over the windows done, in nats
  double seconds = 0;  // Since the first forward
};

/// Result of evaluate().
struct Evaluation {
  double loss = 0;           // Mean, in nats
  std::int64_t tokens = 0;   // Number of targets in the mean
  std::int64_t windows = 0;  // Number of windows
  std::string data = {};     // Description of the data in one line: path, format and number of tokens
};

/// Computes the mean loss over all windows (Samples::ordered_sample()). For GPT-2 and Llama this is the mean over all
/// targets; for BERT, the mean over masked tokens plus the mean over sentence pairs. Sums are in float64. Calls
/// `progress` after each micro-batch, in the calling thread.
///
/// Throws ConfigError if folder, data or tokenizer cannot be read or do not fit together, if the sequence is too long
/// for the model, if the memory is too small, or for bfloat16 on a CPU that emulates it. Throws Error if a loss is not
/// finite.
[[nodiscard]] Evaluation evaluate(const EvaluationOptions& options,
                                  const std::function<void(const EvaluationProgress&)>& progress);

}  // namespace chimera
