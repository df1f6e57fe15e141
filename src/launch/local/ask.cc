#include "launch/local/ask.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "launch/local/process.h"

namespace chimera {
namespace {

using Clock = std::chrono::steady_clock;

std::string all_of(const FileDescriptor& file) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0;
       (got = ::pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

/// A running command. Its output goes to memory files, so no pipe must be drained.
struct Question {
  FileDescriptor output = make_memory_file("chimera-answer", 0);
  FileDescriptor errors = make_memory_file("chimera-answer", 0);
  ChildProcess process;
  std::optional<CommandReply> reply;

  Question(const std::vector<std::string>& words, const FileDescriptor& nothing)
      : process({.executable = words.front(),
                 .arguments = {words.begin() + 1, words.end()},
                 .environment = {},
                 .descriptors = {},
                 .input = nothing.get(),
                 .output = output.get(),
                 .errors = errors.get()}) {}

  void look() {
    const auto ending = process.running() ? process.reap() : std::nullopt;
    if (!ending) return;
    const bool killed = ending->kind == Ending::Kind::Killed;
    reply = {killed ? exit_code_of_signal(ending->value) : ending->value, all_of(output), all_of(errors)};
  }
};

}  // namespace

std::string last_line(std::string errors) {
  constexpr std::string_view kName = "chimera: ";
  while (!errors.empty() && (errors.back() == '\n' || errors.back() == '\r')) errors.pop_back();
  errors.erase(0, errors.rfind('\n') + 1);
  return errors.starts_with(kName) ? errors.substr(kName.size()) : errors;
}

std::vector<std::optional<CommandReply>> ask(const std::vector<std::vector<std::string>>& commands,
                                             std::chrono::milliseconds patience, const SignalInbox& signals,
                                             std::size_t enough) {
  const FileDescriptor nothing(check_system(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open /dev/null"));
  std::vector<Question> questions;
  questions.reserve(commands.size());
  for (const auto& words : commands) questions.emplace_back(words, nothing);
  const auto deadline = Clock::now() + patience;
  const auto is_open = [](const Question& question) { return question.process.running(); };
  const auto agrees = [](const Question& question) { return question.reply && question.reply->exit_code == 0; };
  const auto needed = questions.begin() + static_cast<std::ptrdiff_t>(std::min(enough, questions.size()));
  while (std::ranges::any_of(questions, is_open) && Clock::now() < deadline) {
    std::vector<pollfd> watched = {{signals.fd(), POLLIN, 0}};
    for (const Question& question : questions) watched.push_back({question.process.pidfd(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const int timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    if (::poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR) check_system(-1, "watch commands");
    for (Question& question : questions) question.look();
    if (watched.front().revents != 0 || std::all_of(questions.begin(), needed, agrees)) break;
  }
  std::vector<std::optional<CommandReply>> replies;
  for (Question& question : questions) replies.push_back(std::move(question.reply));
  return replies;  // destructors kill commands that still run
}

}  // namespace chimera
