#pragma once

#include <string>

namespace chimera {

/// The file through which ranks meet, kept open. FileStore reopens its file by name at every use, even in its
/// destructor: a name that leads to our own descriptor stays right whatever becomes of the path or descriptor that the
/// caller named.
class StoreFile {
 public:
  /// Opens `path`, made where it is missing. Throws TransportError where it cannot be opened.
  explicit StoreFile(const std::string& path);
  StoreFile(const StoreFile&) = delete;
  StoreFile& operator=(const StoreFile&) = delete;
  ~StoreFile();

  /// A name of the open file, for this process alone.
  [[nodiscard]] std::string path() const;
  /// Leaves the file open until the process ends.
  void abandon() { descriptor_ = -1; }

 private:
  int descriptor_;
};

}  // namespace chimera
