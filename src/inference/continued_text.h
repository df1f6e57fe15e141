#pragma once
// The text of tokens as a model makes them, up to the place where it is told to stop.

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace chimera {

/// Decodes tokens as they come, and ends before the first of some texts, wherever tokens begin and end. What it has
/// returned is always the beginning of the whole: a character whose bytes are not all there is held back, and so is
/// what may be the beginning of a text to stop at.
class ContinuedText {
 public:
  /// The tokenizer must outlive this. None of `stops` is empty.
  ContinuedText(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer), stops_(std::move(stops)) {}

  /// The text that is certain now; nothing once it has stopped.
  [[nodiscard]] std::string push(TokenId id);
  /// What was held back, as no token follows.
  [[nodiscard]] std::string finish();
  /// Whether one of the texts has come.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] std::string take(const std::string& added, bool all);

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;  // the beginning of one of them, perhaps
  bool stopped_ = false;
};

}  // namespace chimera
