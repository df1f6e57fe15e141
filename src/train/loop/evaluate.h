#pragma once
// The loss of a model on a whole file, in one process.

#include <cstdint>
#include <functional>
#include <string>

#include "core/choices.h"

namespace chimera {

/// What is evaluated: the flags of `chimera evaluate`, with their defaults.
struct EvaluationOptions {
  std::string from = {};              // a Hugging Face folder
  std::string data = {};              // text, tokens or a folder of such files (data/open_tokens.h)
  std::string tokenizer = {};         // of text (open_tokenizer); empty: that of the folder, else bytes
  std::int64_t sequence = 0;          // L, tokens of a sample; at least 1
  std::int64_t micro_batch_size = 8;  // b, samples of a forward; at least 1
  DataType dtype = DataType::Float32;
  bool force_bfloat16 = false;  // even where the CPU has to emulate it
  std::int64_t seed = 1;        // of BERT's pairs and masks
  std::int64_t threads = 0;     // intra-op threads; 0: as many as cores
};

/// How far an evaluation is.
struct EvaluationProgress {
  std::int64_t windows_done = 0;
  std::int64_t windows = 0;
  std::int64_t tokens_done = 0;  // of the windows done
  double loss = 0;               // mean of these
  double seconds = 0;
};

struct Evaluation {
  double loss = 0;           // in nats
  std::int64_t tokens = 0;   // targets that the loss is a mean over
  std::int64_t windows = 0;  // OrderedSamples::count()
  std::string data = {};     // what the files were taken for, in one line
};

/// Computes the mean loss over all windows of the data (OrderedSamples, data/samples.h), in their order: of GPT-2 and
/// Llama over all targets, of BERT the mean over all masked tokens plus that over all pairs. Losses of micro-batches
/// are added in float64. Calls `progress` after each. Throws ConfigError, one line, for a folder, data or tokenizer
/// that cannot be read or do not fit each other, and Error for a loss that is not finite, with the windows in which it
/// was found.
[[nodiscard]] Evaluation evaluate(const EvaluationOptions& options,
                                  const std::function<void(const EvaluationProgress&)>& progress);

}  // namespace chimera
