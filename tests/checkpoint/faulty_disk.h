#pragma once
// A disk that fails at one call of a save: with an error, or as if the process or the machine ended.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/disk.h"

namespace chimera::testing {

/// Effect of the faulty call.
enum class DiskFault {
  Error,       ///< it fails, and later calls succeed
  DeadDisk,    ///< it fails, and so do all later calls
  ShortWrite,  ///< it writes half of the bytes, and the next write fails; calls other than writes succeed
  Kill,        ///< the process ends before the call
  LoseBytes,   ///< the machine ends before the call: files lose all bytes that were not synced
  LoseNames,   ///< like LoseBytes; names revert to their state when their folder was synced
};
inline constexpr DiskFault kDiskFaults[] = {DiskFault::Error, DiskFault::DeadDisk,  DiskFault::ShortWrite,
                                            DiskFault::Kill,  DiskFault::LoseBytes, DiskFault::LoseNames};

/// Thrown to imitate the end of the process; not a std::exception, so that no handler catches it.
struct Killed {};

/// It never waits for the machine's disk.
class FaultyDisk final : public Disk {
 public:
  /// Makes call number `call` (from 0) fail; if `call` is negative, no call fails.
  explicit FaultyDisk(DiskFault fault = DiskFault::Error, int call = -1) : fault_(fault), fails_at_(call) {}

  [[nodiscard]] int calls() const { return calls_; }
  /// After the end of the machine: leaves only synced data. Does nothing for other faults.
  void lose_unsynced();

  bool make_folder(const std::string& path) override;
  int create(const std::string& path) override;
  std::size_t write(int file, std::span<const std::byte> bytes, const std::string& path) override;
  void sync(int file, const std::string& path) override;
  void close(int file) noexcept override;
  void sync_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  bool exchange(const std::string& one, const std::string& other) override;
  void remove_file(const std::string& path) override;
  void remove_folder(const std::string& path) override;

 private:
  struct NameChange {
    std::string folder;
    std::function<void()> undo;
  };
  /// Counts a call, and throws if it fails. Returns true if a write should be short.
  bool enter(const std::string& path);
  void note(const std::string& path, std::function<void()> undo);
  void move_sizes(const std::string& from, const std::string& to);

  DiskFault fault_;
  int fails_at_;
  int calls_ = 0;
  bool dead_ = false;
  std::map<std::string, std::size_t> unsynced_;  // synced size of each file with unsynced bytes
  std::vector<NameChange> names_;                // changes of names that may be lost
};

}  // namespace chimera::testing
