#include "telemetry/record_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/console.h"
#include "core/error.h"

namespace chimera {

RecordFile::RecordFile(FileDescriptor file, std::string name, off_t size)
    : file_(std::move(file)), name_(std::move(name)), size_(size) {}

void RecordFile::add(const std::string& record) {
  waiting_ += record;
  const int cause = write_waiting();
  if (cause != 0 && !has_failed_) {
    messages().write(fmt::format("chimera: {}: {}; training goes on, and writes what is missing when it can\n", name_,
                                 system_message(cause)));
  }
  if (cause == 0 && has_failed_)
    messages().write(fmt::format("chimera: {}: is written again, with all lines\n", name_));
  has_failed_ = cause != 0;
}

void RecordFile::finish() {
  const int cause = write_waiting();
  if (cause != 0) throw Error(fmt::format("{}: its end is missing: {}", name_, system_message(cause)));
}

int RecordFile::write_waiting() {
  if (waiting_.empty()) return 0;
  const auto written = ::write(file_.get(), waiting_.data(), waiting_.size());
  const int cause = written < 0 ? errno : ENOSPC;
  if (written != static_cast<ssize_t>(waiting_.size()) && cause != EPIPE) {
    // Takes back the part for which there was room.
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), size_);
    return cause;
  }
  size_ += static_cast<off_t>(waiting_.size());
  waiting_.clear();
  return 0;
}

}  // namespace chimera
