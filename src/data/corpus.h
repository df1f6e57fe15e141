#pragma once

// The data of a run: text or token files, a folder of shards, or a weighted mixture of these, split into tokens for
// training and for validation. It joins the parts of this room:
//
//   parse_mixture() -> open_tokens() of each path -> TokenStream -> TokenView of each split -> Samples
//
// A worker then reads samples (samples.h) from the views; nothing is in memory but text that was tokenized at the
// start.

#include <cstdint>
#include <string>
#include <vector>

#include "data/mixture.h"
#include "data/open_tokens.h"
#include "data/token_stream.h"

namespace chimera {

/// Default share of the validation split.
inline constexpr double kValidationShare = 0.05;

struct DataOptions {
  /// A path for open_tokens(), or a mixture for parse_mixture().
  std::string data;
  /// Same as `data`, or a share in [0, 1). Empty: the folder's validation shards, or else kValidationShare.
  std::string validation = {};
  std::uint64_t seed = 1;  ///< order of a mixture
  TokenOptions tokens = {};
};

/// Validation is the last size * share tokens of a source, rounded down, unless it has its own files.
enum class Split { Train, Validation };

struct MixedTokens {
  std::vector<TokenView> sources;
  Mixture mixture;
};

struct OpenedFiles {
  std::vector<const DataFile*> files;    ///< owned by the streams of the views
  bool is_plain_text = true;             ///< all tokens are bytes of text
  std::string description;               ///< one line: "a.bin: raw 16-bit tokens, 4404445 tokens; b: ..."
  std::vector<std::string> passed_over;  ///< a line per folder with entries that are not read
};

/// The open files of a run, split for training and validation. Views are named "PATH (training)" or "PATH
/// (validation)".
struct Corpus {
  MixedTokens training;
  MixedTokens validation;
  OpenedFiles opened;

  [[nodiscard]] const MixedTokens& split(Split which) const { return which == Split::Train ? training : validation; }
};

/// Checks the ids of up to 2^25 tokens per source in evenly spaced blocks. Throws ConfigError as open_tokens() and
/// TokenFile::read() do, or if `validation` is neither a share nor files.
[[nodiscard]] Corpus open_corpus(const DataOptions& options);

/// A source without a split.
struct WholeSource {
  TokenView tokens;  ///< named like the path
  OpenedFiles opened;
};

/// Opens a path, but only the validation shards if it has any. Throws as open_corpus() does.
[[nodiscard]] WholeSource open_whole_source(const std::string& path, const TokenOptions& options);

}  // namespace chimera
