#pragma once
// What is done to a text before it is cut into words.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace chimera {

struct ComposeStep {};    ///< NFC
struct DecomposeStep {};  ///< NFD
struct PrependStep {      ///< a text that is not empty
  std::string prefix;
};
struct ReplaceStep {
  std::string from;  ///< not empty
  std::string to;
};
/// BERT's. In this order:
struct BertStep {
  bool clean_text = true;            ///< control characters go, white space becomes blanks
  bool handle_chinese_chars = true;  ///< blanks around them
  bool strip_accents = true;         ///< NFD without marks
  bool lowercase = true;
};
using NormalizerStep = std::variant<ComposeStep, DecomposeStep, PrependStep, ReplaceStep, BertStep>;

/// Steps, one after the other.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  [[nodiscard]] const std::vector<NormalizerStep>& steps() const { return steps_; }
  /// The normalised text, in `buffer` unless nothing changes. With `continues` nothing is put before it.
  [[nodiscard]] std::string_view apply(std::string_view text, std::string& buffer, bool continues = false) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace chimera
