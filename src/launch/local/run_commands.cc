#include "launch/local/run_commands.h"

#include <fcntl.h>

#include <fmt/format.h>
#include <algorithm>

#include "core/file_descriptor.h"
#include "core/files.h"

namespace chimera {
namespace {

using Clock = std::chrono::steady_clock;

/// Output of a command, in memory files, so that no pipe must be drained.
struct CommandOutput {
  FileDescriptor output = make_memory_file("chimera-answer", 0);
  FileDescriptor errors = make_memory_file("chimera-answer", 0);
};

/// Returns everything written to a memory file. Its path opens it anew, at the first byte.
std::string content_of(const FileDescriptor& file) { return read_whole(fmt::format("/proc/self/fd/{}", file.get())); }

}  // namespace

std::string last_line(std::string errors) {
  constexpr std::string_view kName = "chimera: ";
  while (!errors.empty() && (errors.back() == '\n' || errors.back() == '\r')) errors.pop_back();
  errors.erase(0, errors.rfind('\n') + 1);
  return errors.starts_with(kName) ? errors.substr(kName.size()) : errors;
}

std::vector<std::optional<CommandReply>> run_commands(const std::vector<std::vector<std::string>>& commands,
                                                      std::chrono::milliseconds timeout, const SignalInbox& signals,
                                                      std::size_t enough) {
  // Without it, ssh would read the terminal's input, which is meant for the job.
  const FileDescriptor nothing(check_system(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open /dev/null"));
  std::vector<CommandOutput> files(commands.size());
  std::vector<ChildProcess> processes;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const std::vector<std::string>& words = commands[i];
    processes.emplace_back(Command{.executable = words.front(),
                                   .arguments = {words.begin() + 1, words.end()},
                                   .input = nothing.get(),
                                   .output = files[i].output.get(),
                                   .errors = files[i].errors.get()});
  }
  const auto deadline = Clock::now() + timeout;
  std::vector<std::optional<CommandReply>> replies(commands.size());
  const auto has_succeeded = [](const std::optional<CommandReply>& reply) { return reply && reply->exit_code == 0; };
  const auto needed = replies.begin() + static_cast<std::ptrdiff_t>(std::min(enough, replies.size()));
  while (has_running(processes) && Clock::now() < deadline) {
    for (const auto& [index, ending] : wait_for_exits(processes, signals, -1, deadline)) {
      replies[index] = {.exit_code = exit_code_of(ending),
                        .output = content_of(files[index].output),
                        .errors = content_of(files[index].errors)};
    }
    if (signals.has_signal() || std::all_of(replies.begin(), needed, has_succeeded)) break;
  }
  return replies;  // the destructor kills the other commands
}

}  // namespace chimera
