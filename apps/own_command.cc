#include "own_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "bench/training_run.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "launch/local/launcher.h"

namespace chimera::apps {
namespace {

std::string all_of(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t count = 0; (count = ::read(descriptor, buffer.data(), buffer.size())) != 0;) {
    if (count < 0 && errno != EINTR) break;
    if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return text;
}

int exit_code_of(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

CommandResult run_own(const std::vector<std::string>& words) {
  std::vector<std::string> all = {"chimera"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC), "make a pipe");
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  pid_t process = 0;
  const int error = ::posix_spawn(&process, own_executable().c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw Error(fmt::format("cannot start `{}`: {}", as_typed(words), system_message(error)));
  writer = FileDescriptor();
  CommandResult result;
  result.output = all_of(reader.get());
  result.exit_code = exit_code_of(process);
  return result;
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    const bool is_plain = !word.empty() && word.find_first_of(" \t\n'\"\\$`*?[]{}()<>|&;#~!") == std::string::npos;
    if (!line.empty()) line += " ";
    line += is_plain ? word : shell_word(word);
  }
  return line;
}

std::string as_typed(const std::vector<std::string>& words) {
  return words.empty() ? "chimera" : "chimera " + shell_words(words);
}

std::string shipped_file(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(own_executable()).parent_path();
  for (const fs::path& file : {folder.parent_path() / CHIMERA_DATA_FOLDER / name, folder.parent_path() / name,
                               folder.parent_path().parent_path() / name}) {
    if (fs::is_regular_file(file)) return file.string();
  }
  throw ConfigError(fmt::format("{} is not there; install the program anew, or run it where it was built", name));
}

}  // namespace chimera::apps
