#include "data/tokens.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace chimera {
namespace {

constexpr std::size_t kValidationPart = 20;  // one token in so many

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw ConfigError(fmt::format("cannot read the corpus {}: {}; expected a UTF-8 text file", path, reason));
}

}  // namespace

Corpus::Corpus(Corpus&& other) noexcept : bytes_(std::exchange(other.bytes_, {})), path_(std::move(other.path_)) {}

Corpus::~Corpus() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

TokenView Corpus::split(Split which) const {
  const std::size_t training = bytes_.size() - bytes_.size() / kValidationPart;
  if (which == Split::Train) return {bytes_.first(training), path_ + " (training)"};
  return {bytes_.subspan(training), path_ + " (validation)"};
}

Corpus open_corpus(const std::string& path) {
  // Non-blocking: to open a pipe would wait for its writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) refuse(path, system_message(errno));
  struct stat status {};
  check_system(::fstat(file.get(), &status), "examine " + path);
  if (S_ISDIR(status.st_mode)) refuse(path, "it is a directory");
  if (!S_ISREG(status.st_mode)) refuse(path, "it is not a regular file");
  if (status.st_size == 0) refuse(path, "it is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  const void* bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (bytes == MAP_FAILED) refuse(path, system_message(errno));
  return {{static_cast<const std::uint8_t*>(bytes), size}, path};
}

}  // namespace chimera
