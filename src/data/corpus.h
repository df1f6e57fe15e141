#pragma once

// The data of a run: text or token files, a folder of such files, or a weighted mixture of these, split into tokens for
// training and for validation. Each path in the data is called a *source*. open_corpus() combines the other headers of
// src/data:
//
//   parse_mixture() -> open_tokens() of each path -> TokenStream -> TokenView of each split -> Samples
//
// A rank then reads samples (samples.h) from the views. Token files stay on the disk; only text that was tokenized at
// the start is in memory.

#include "data/mixture.h"
#include "data/open_tokens.h"
#include "data/token_stream.h"

namespace chimera {

/// Default fraction of the tokens that is for validation.
inline constexpr double kValidationShare = 0.05;

/// What the user gives: --data, --validation and their settings.
struct CorpusOptions {
  /// A path for open_tokens(), or a mixture for parse_mixture().
  std::string data;
  /// A path or mixture for validation, or the fraction of `data` in [0, 1) that is for validation. If it is empty, a
  /// folder with validation files (open_tokens()) uses these files; any other source uses the fraction kValidationShare
  /// of its tokens, its last ones.
  std::string validation = {};
  std::uint64_t seed = 1;  ///< order of a mixture
  TokenOptions tokens = {};
};

/// Part of the data. Without files for validation, Validation has the last tokens of each source: size * fraction,
/// rounded down.
enum class Split { Train, Validation };

/// Tokens of a split: one view per source, and the mixture that assigns samples to the sources.
struct MixedTokens {
  std::vector<TokenView> sources;
  Mixture mixture;
};

/// The files of all sources, and facts for messages.
struct OpenedFiles {
  std::vector<const DataFile*> files;           ///< owned by the streams of the views
  bool is_plain_text = true;                    ///< all tokens are bytes of text
  std::string description;                      ///< one line: "a.bin: raw 16-bit tokens, 4404445 tokens; b: ..."
  std::vector<std::string> ignored_files_note;  ///< one message for each folder in which some files are not read
};

/// The open files of a run, split for training and validation. Views are named "PATH (training)" or "PATH
/// (validation)".
struct Corpus {
  MixedTokens training;
  MixedTokens validation;
  OpenedFiles opened;

  [[nodiscard]] const MixedTokens& split(Split which) const { return which == Split::Train ? training : validation; }
};

/// Opens the files and divides them into splits. Checks the ids of up to 2^25 tokens per source, in evenly spaced
/// blocks. Throws ConfigError if a file cannot be opened as tokens, if an id is outside the vocabulary, if `validation`
/// is neither a fraction in [0, 1) nor files, or if it is a fraction and a source has validation files.
[[nodiscard]] Corpus open_corpus(const CorpusOptions& options);

/// All tokens of a source, for evaluation.
struct WholeSource {
  TokenView tokens;  ///< named like the path
  OpenedFiles opened;
};

/// Opens all tokens of a path. If the path is a folder with validation files, opens only these. Throws ConfigError if
/// open_corpus() would, or if `path` is a mixture.
[[nodiscard]] WholeSource open_whole_source(const std::string& path, const TokenOptions& options);

}  // namespace chimera
