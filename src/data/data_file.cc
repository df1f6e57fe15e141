#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "data/data_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/reject.h"

namespace chimera {
namespace {

[[noreturn]] void refuse_data(const std::string& path, const std::string& reason) {
  reject("cannot read the corpus {}: {}; expected a UTF-8 text file or a token file", path, reason);
}

/// A pipe, a device or standard input: training reads samples in any order, and again in each epoch.
[[noreturn]] void refuse_stream(const std::string& path, const std::string& reason) {
  reject(
      "cannot read the corpus {}: {}; write the text to a file, or make tokens of it: COMMAND | chimera tokenize - "
      "--tokenizer TOKENIZER --output PREFIX",
      path, reason);
}

FileDescriptor open_regular(const std::string& path) {
  // Non-blocking, because opening a pipe would wait for its writer.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && path == "-") refuse_stream(path, "it is standard input");
  if (file.get() < 0) refuse_data(path, system_message(errno));
  struct stat status {};
  check_system(::fstat(file.get(), &status), "examine " + path);
  if (S_ISDIR(status.st_mode)) refuse_data(path, "it is a directory");
  if (!S_ISREG(status.st_mode)) refuse_stream(path, "it is not a regular file");
  if (status.st_size == 0) refuse_data(path, "it is empty");
  return file;
}

}  // namespace

DataFile file_in_memory(std::span<const std::byte> bytes, const std::string& name) {
  // A file without a name has the same interface as one on disk, and its memory can be swapped out.
  FileDescriptor file(check_system(::memfd_create("chimera-tokens", MFD_CLOEXEC), "make a file in memory"));
  const int cause = write_all(file.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (cause != 0) throw Error("cannot keep the tokens of " + name + " in memory: " + system_message(cause));
  return {std::move(file), name};
}

DataFile::DataFile(const std::string& path) : DataFile(open_regular(path), path) {}

DataFile::DataFile(FileDescriptor file, std::string name) : file_(std::move(file)), path_(std::move(name)) {
  size_ = size_now();
}

std::int64_t DataFile::size_now() const {
  struct stat status {};
  check_system(::fstat(file_.get(), &status), "examine " + path_);
  return status.st_size;
}

void DataFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(fmt::format("cannot read {} at byte {}: {}", path_, offset, system_message(errno)));
    // pread() at or behind the end. With a mapping, this would have been SIGBUS.
    if (got == 0)
      throw Error(
          fmt::format("{} has shrunk: it had {} bytes when the run started and ends at byte {} now; do not change data "
                      "while a run reads them",
                      path_, size_, size_now()));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

std::uint64_t content_hash(const DataFile& file, std::int64_t samples, const std::function<void()>& progress) {
  const std::int64_t all = (file.size() + kHashedBlock - 1) / kHashedBlock;
  // A file with no more blocks than samples is hashed whole, but like a sampled one with its size.
  const bool is_whole = samples == 0 || samples >= all;
  const std::int64_t blocks = is_whole ? all : std::max<std::int64_t>(samples, 2);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  std::vector<std::byte> block;
  for (std::int64_t i = 0; i < blocks; ++i) {
    // The first sample begins with the file, and the last ends with it.
    const std::int64_t begin = is_whole ? i * kHashedBlock : (file.size() - kHashedBlock) * i / (blocks - 1);
    block.resize(static_cast<std::size_t>(std::min(kHashedBlock, file.size() - begin)));
    file.read(begin, block);
    XXH3_64bits_update(&state, block.data(), block.size());
    progress();
  }
  const std::int64_t size = file.size();
  // Samples alone would miss bytes that were appended between them.
  if (samples > 0) XXH3_64bits_update(&state, &size, sizeof size);
  return XXH3_64bits_digest(&state);
}

}  // namespace chimera
