#pragma once
// Pipes between a test and the program or part under test.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include "core/file_descriptor.h"

namespace chimera::testing {

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

[[nodiscard]] inline Pipe make_pipe() {
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC), "create a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// Fills the pipe's buffer, as a paused reader does. Returns its size in bytes.
inline std::size_t fill(const Pipe& pipe) {
  const int flags = ::fcntl(pipe.write.get(), F_GETFL);
  ::fcntl(pipe.write.get(), F_SETFL, flags | O_NONBLOCK);
  std::size_t size = 0;
  while (::write(pipe.write.get(), "#", 1) == 1) ++size;
  ::fcntl(pipe.write.get(), F_SETFL, flags);
  return size;
}

/// Appends the available bytes to `text`. Returns false at the end of the stream.
inline bool append_from(const FileDescriptor& fd, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
  if (size > 0) text.append(buffer.data(), static_cast<std::size_t>(size));
  return size > 0;
}

}  // namespace chimera::testing
