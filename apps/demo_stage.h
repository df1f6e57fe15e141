#pragma once
// What a demo speaks through: explanations, the commands that it runs, and bars.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/temporary_folder.h"

namespace chimera::apps {

using Words = std::vector<std::string>;

/// A demo under way: prints to standard output, and keeps its files in one folder.
class DemoStage {
 public:
  /// Files go to `folder`, which stays, or where it is empty into one that is removed at the end. With `pauses` it
  /// waits for Enter before every command.
  DemoStage(const std::string& folder, bool pauses);
  DemoStage(const DemoStage&) = delete;
  DemoStage& operator=(const DemoStage&) = delete;

  /// A heading.
  void title(const std::string& words);
  /// A paragraph, wrapped.
  void say(const std::string& words);
  /// Prints the command as a person would type it, runs it, and shows what it prints, indented. Throws Error where it
  /// ends with a code other than `expected`.
  void run(const Words& words, int expected = 0);
  /// The same, but what the command prints is returned instead. Throws likewise.
  [[nodiscard]] std::string ask(const Words& words);
  /// A line for each name: a bar as long as its value's share of the largest, and what `label` says.
  struct Bar {
    std::string name;
    double value = 0;
    std::string label;
  };
  void bars(const std::vector<Bar>& bars);
  /// The path of a file of the demo.
  [[nodiscard]] std::string file(const std::string& name) const { return (folder_ / name).string(); }
  /// Some English text to train on: what this program says of itself in its --help.
  [[nodiscard]] std::string text();

 private:
  void show(const Words& words);

  std::filesystem::path folder_;
  std::optional<TemporaryFolder> temporary_;  // where no other is given
  bool pauses_;
};

}  // namespace chimera::apps
