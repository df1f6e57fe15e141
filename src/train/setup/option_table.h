#pragma once

// The options of `chimera train`, each declared once: its flag, which is also the key of TOML files, help, default,
// range, the flag that it needs, whether ranks must agree, and whether checkpoints and resolved.toml record it. Readers
// are the command line with its help (apps/train_command_line.h), the checks of ranges (prepare_job.h), the fingerprint
// and record of a job (job_identity.h), and resolved.toml (apps/train.cc). Flags that other commands share (shape,
// sizes of the model, stages to recompute) are in apps/flags.

#include <nlohmann/json.hpp>

#include "train/setup/options.h"

namespace chimera {

/// Flag for the step (from 1) that failed in the previous attempt.
inline constexpr const char* kFailedStepFlag = "--failed-step";

/// Flags for ResumeOptions::sample_shift and token_shift.
inline constexpr const char* kSampleShiftFlag = "--sample-shift";
inline constexpr const char* kTokenShiftFlag = "--token-shift";

/// Option::type of a list of words, which commas may separate.
inline constexpr const char* kWords = "TEXT ...";

/// Where an option is used besides its own purpose; bits of OptionTraits::marks.
enum OptionMark : unsigned {
  kEqual = 1,  // All ranks must agree
  // Checkpoints also have it as a hyperparameter. A new option has this mark only if it differs from its default:
  // otherwise runs from older checkpoints, which do not have it, would report a change
  kRecorded = 3,
  kResolved = 4,  // resolved.toml has it even if it is not given
  kSettled = 8,   // --resume may set it; replacements of lost ranks, which read no checkpoint, get it
};

struct OptionTraits {
  unsigned marks = 0;
  double least = 0;  // Range of a number; both ends are valid
  double most = 0;   // 0: any value of the type
};

/// The declaration of an option, with its value at the time of declare_options().
struct Option {
  const char* heading;  // In --help; empty: hidden
  const char* flag;
  std::string help;  // With the default
  std::string type;  // Of the text, as in --help, such as N or FILE; empty: the flag takes no text
  std::function<void(const std::string&)> take;  // Parses the text. Throws ConfigError
  std::string* data = nullptr;  // Where `take` stores a mixture of data, whose text may be several words; else null
  nlohmann::ordered_json value = {};  // Null: not set
  OptionTraits traits = {};
  const char* purpose = nullptr;  // Flag without which this one has no effect; null: none
  bool has_effect = true;         // The purpose is given

  /// Sets `purpose` to the flag `needed`, and `has_effect` to whether it is given.
  Option& needs(const char* needed, bool is_given) { return purpose = needed, has_effect = is_given, *this; }

  [[nodiscard]] bool has(OptionMark mark) const { return (traits.marks & mark) == mark; }
  /// Returns the value as the text of the flag.
  [[nodiscard]] std::string text() const;
  /// Throws ConfigError if a number is out of its range.
  void require_in_range() const;
  /// Returns the key in the record of a checkpoint: `min_learning_rate`.
  [[nodiscard]] std::string key() const;
};

/// Declares all options, in the order of --help. Option::take writes into `options`, which must outlive the result.
[[nodiscard]] std::vector<Option> declare_options(TrainOptions& options);

/// Returns the declarations with the values of `options`, without Option::take.
[[nodiscard]] std::vector<Option> declared_values(TrainOptions options);

}  // namespace chimera
