#pragma once
// All that a run reads: its sources, mixed, and of each the parts for training and for validation.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/mixture.h"
#include "data/open_tokens.h"
#include "data/token_stream.h"

namespace chimera {

/// The share of every source that is for validation, where nothing else is said.
inline constexpr double kValidationShare = 0.05;

struct DataOptions {
  /// What open_tokens takes, or a mixture of it (parse_mixture).
  std::string data;
  /// The same, or a share in [0, 1). Empty: the shards that a folder keeps apart for that, or kValidationShare.
  std::string validation = {};
  std::uint64_t seed = 1;  ///< chooses the order of a mixture
  TokenOptions tokens = {};
};

/// The training split of a source is all of it but the validation split, which is its last tokens: size times share of
/// them, rounded down. Where validation has files of its own, all of the source is for training.
enum class Split { Train, Validation };

/// Sources and their shares of the samples; as many views as the mixture has sources.
struct MixedTokens {
  std::vector<TokenView> sources;
  Mixture mixture;
};

/// Open files and what they are for.
class Corpus {
 public:
  /// One split, its views named "PATH (training)" or "PATH (validation)".
  [[nodiscard]] const MixedTokens& split(Split which) const { return which == Split::Train ? training_ : validation_; }
  /// Every file that the samples depend on.
  [[nodiscard]] const std::vector<const DataFile*>& files() const { return files_; }
  /// Whether all tokens are bytes of text.
  [[nodiscard]] bool is_plain_text() const { return is_plain_text_; }
  /// What the files were taken for, in one line: "a.bin: raw 16-bit tokens, 4404445 tokens; b: ...".
  [[nodiscard]] const std::string& description() const { return description_; }

 private:
  friend Corpus open_corpus(const DataOptions& options);
  Corpus(MixedTokens training, MixedTokens validation)
      : training_(std::move(training)), validation_(std::move(validation)) {}

  MixedTokens training_;
  MixedTokens validation_;
  std::vector<const DataFile*> files_;  ///< of the streams that the views keep
  bool is_plain_text_ = true;
  std::string description_;
};

/// Opens all files and looks at the ids of 2^25 tokens of each source: all of them, or blocks evenly spread; the others
/// are looked at when they are read. Throws ConfigError, naming the path, as open_tokens and TokenFile::read do, and
/// for a validation that is neither share nor files.
[[nodiscard]] Corpus open_corpus(const DataOptions& options);

/// One source, none of it kept apart.
struct WholeSource {
  TokenView tokens;           ///< named as the path
  bool is_plain_text = true;  ///< as Corpus::is_plain_text()
  std::string description;    ///< as Corpus::description()
};

/// Opens what open_tokens takes, which is no mixture: of a folder that keeps shards for validation those alone. Looks
/// at ids as open_corpus does, and throws as that.
[[nodiscard]] WholeSource open_whole_source(const std::string& path, const TokenOptions& options);

}  // namespace chimera
