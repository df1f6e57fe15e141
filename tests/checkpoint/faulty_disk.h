#pragma once
// A disk that fails at one call of a save, as an error or as the end of the process or of the machine.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/disk.h"

namespace chimera::testing {

/// What happens at a call.
enum class DiskFault {
  Error,       ///< it fails, and later ones do not
  DeadDisk,    ///< it fails, and all later ones do
  ShortWrite,  ///< it writes half of the bytes, and the next write fails; other calls do nothing special
  Kill,        ///< the process ends before it
  LoseBytes,   ///< the machine ends before it: files have no bytes but those that were synced
  LoseNames,   ///< the same, and all names are what they were when their folder was synced
};
inline constexpr DiskFault kDiskFaults[] = {DiskFault::Error, DiskFault::DeadDisk,  DiskFault::ShortWrite,
                                            DiskFault::Kill,  DiskFault::LoseBytes, DiskFault::LoseNames};

/// Thrown in place of the end of the process; no std::exception, so that nothing handles it.
struct Killed {};

/// It never waits for the machine's disk.
class FaultyDisk final : public Disk {
 public:
  /// Has the `call`-th call (from 0) fail; a negative one never comes.
  explicit FaultyDisk(DiskFault fault = DiskFault::Error, int call = -1) : fault_(fault), fails_at_(call) {}

  [[nodiscard]] int calls() const { return calls_; }
  /// After the end of the machine: leaves what the disk had by then. Nothing for other faults.
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
  /// Counts a call; throws where it fails. Returns whether a write is to be short.
  bool enter(const std::string& path);
  void note(const std::string& path, std::function<void()> undo);
  void move_sizes(const std::string& from, const std::string& to);

  DiskFault fault_;
  int fails_at_;
  int calls_ = 0;
  bool dead_ = false;
  std::map<std::string, std::size_t> unsynced_;  // files with bytes that may be lost: what they have without these
  std::vector<NameChange> names_;                // that may be lost
};

}  // namespace chimera::testing
