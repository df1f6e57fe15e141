#include "process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace chimera {
namespace {

void check(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

MemoryFile::MemoryFile(const char* name) : descriptor_(::memfd_create(name, 0)) {
  check(descriptor_ < 0 ? errno : 0, "memfd_create");
  ::fcntl(descriptor_, F_SETFL, O_APPEND);  // otherwise concurrent writes overwrite each other
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

std::string MemoryFile::text() const {
  std::string all;
  std::array<char, 4096> piece{};
  while (true) {
    const ssize_t size = ::pread(descriptor_, piece.data(), piece.size(), static_cast<off_t>(all.size()));
    if (size <= 0) return all;
    all.append(piece.data(), static_cast<std::size_t>(size));
  }
}

pid_t start(const std::vector<std::string>& command, const std::string& variable, const MemoryFile& output) {
  std::vector<std::string> arguments = command;
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  if (!variable.empty()) environment.push_back(variable);
  posix_spawn_file_actions_t actions;
  check(::posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
  ::posix_spawn_file_actions_adddup2(&actions, output.descriptor(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output.descriptor(), STDERR_FILENO);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, arguments.front().c_str(), &actions, nullptr, pointers(arguments).data(),
                                  pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  check(error, arguments.front().c_str());
  return child;
}

int await(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) check(errno == EINTR ? 0 : errno, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace chimera
