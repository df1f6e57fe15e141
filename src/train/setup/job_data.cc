#include "train/setup/job_data.h"

#include <fmt/format.h>

#include <memory>

#include "core/error.h"
#include "train/setup/data_tokenizer.h"

namespace chimera {
namespace {

DataOptions data_options(const TrainOptions& options, const DataTokenizer& tokenizer) {
  DataOptions data{.data = options.data,
                   .validation = options.validation,
                   .seed = static_cast<std::uint64_t>(options.seed),
                   .tokens = tokenizer.token_options()};
  if (options.end_of_document != kNoToken) data.tokens.end_of_document = options.end_of_document;
  return data;
}

/// BERT's pairs have texts of their own.
void require_documents(const Job& job) {
  if (job.options.documents == Documents::Pack || is_causal(job.model.family)) return;
  throw ConfigError(fmt::format("--documents split: samples of model {} are pairs of texts; use pack", job.model.name));
}

}  // namespace

void open_data(Job& job) {
  const TrainOptions& options = job.options;
  if (options.data.empty()) throw ConfigError("--data is missing; give a UTF-8 text file, or one of tokens");
  const DataTokenizer tokenizer(options.tokenizer, job.from.get(), job.model);
  job.corpus = std::make_shared<Corpus>(open_corpus(data_options(options, tokenizer)));
  require_documents(job);
  SampleOptions samples = tokenizer.sample_options(job.corpus->is_plain_text());
  samples.sequence = options.sequence;
  samples.seed = static_cast<std::uint64_t>(options.seed);
  samples.documents = options.documents;
  job.tokenizer = tokenizer.source(job.corpus->is_plain_text());
  job.training_samples.emplace(job.corpus->split(Split::Train), samples);
  if (options.validate_every > 0) job.validation_samples.emplace(job.corpus->split(Split::Validation), samples);
}

}  // namespace chimera
