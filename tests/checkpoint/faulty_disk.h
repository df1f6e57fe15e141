#pragma once
// A disk that fails at one call of a save or export: with an error, or as if the process or the machine ended.

#include <filesystem>
#include <map>
#include <memory>
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
  // The machine ends before the call, and bytes that were not synced are lost. So are changes of names in a folder
  // since its last sync: none of them, all, the first one, or all but the last
  LoseBytes,
  LoseNames,
  LoseFirstName,
  KeepLastName,
};
inline constexpr DiskFault kDiskFaults[] = {DiskFault::Error,         DiskFault::DeadDisk,    DiskFault::ShortWrite,
                                            DiskFault::Kill,          DiskFault::LoseBytes,   DiskFault::LoseNames,
                                            DiskFault::LoseFirstName, DiskFault::KeepLastName};

/// Thrown to imitate the end of the process; not a std::exception, so that no handler catches it.
struct Killed {};

/// It never waits for the machine's disk.
class FaultyDisk final : public Disk {
 public:
  /// Makes call number `call` (from 0) fail; if `call` is negative, no call fails. `root` is the folder of everything
  /// that is written, and all its content is on the disk now; it may be empty for faults that lose nothing.
  explicit FaultyDisk(DiskFault fault = DiskFault::Error, int call = -1, const std::string& root = "");

  [[nodiscard]] int calls() const { return calls_; }
  /// Replaces the content of the root by what the disk has after the end of the machine. Does nothing for other faults.
  void lose_unsynced();

  bool make_folder(const std::string& path) override;
  int create(const std::string& path) override;
  int open(const std::string& path) override;
  std::size_t write(int file, std::uint64_t offset, std::span<const std::byte> bytes, const std::string& path) override;
  void sync(int file, const std::string& path) override;
  void close(int file) noexcept override;
  void sync_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  bool exchange(const std::string& one, const std::string& other) override;
  void remove_file(const std::string& path) override;
  void remove_folder(const std::string& path) override;

 private:
  /// A file or folder, whatever its name.
  struct Node {
    bool is_folder = true;
    std::string bytes;  // of a file
    std::string synced_bytes;
    using Names = std::map<std::string, std::shared_ptr<Node>>;
    Names names;  // of a folder
    Names synced_names;
    std::vector<Names> changes;  // since its last sync; null: removed. A rename is one change
  };
  using NodePointer = std::shared_ptr<Node>;

  [[nodiscard]] bool loses() const { return fault_ >= DiskFault::LoseBytes; }
  /// Counts a call, and throws if it fails. Returns true if a write should be short.
  bool enter(const std::string& path);
  [[nodiscard]] NodePointer find(const std::filesystem::path& path) const;
  /// Notes a change of names in the folder of `path`.
  void change(const std::string& path, const Node::Names& names);
  [[nodiscard]] Node::Names names_after(const Node& folder) const;
  void load(const std::filesystem::path& folder, Node& node) const;
  void store(const std::filesystem::path& folder, const Node& node) const;

  DiskFault fault_;
  int fails_at_;
  std::filesystem::path root_;
  NodePointer tree_ = std::make_shared<Node>();
  int calls_ = 0;
  bool dead_ = false;
};

}  // namespace chimera::testing
