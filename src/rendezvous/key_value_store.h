#pragma once

// The key-value store that ranks use for rendezvous, in the memory of rank 0. The server (server.h) gives ranks access
// to it.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/channel.h"

namespace chimera {

/// The key-value store that ranks use for rendezvous. Thread-safe.
class KeyValueStore {
 public:
  void set(const std::string& name, std::string value);
  /// Returns nullopt if the key is absent.
  [[nodiscard]] std::optional<std::string> find(const std::string& name) const;
  /// Counters start at 0. Returns the sum.
  std::int64_t add(const std::string& name, std::int64_t number);
  /// Returns whether the key existed.
  bool remove(const std::string& name);
  [[nodiscard]] std::int64_t count() const;
  [[nodiscard]] bool has_all(const std::vector<std::string>& names) const;
  /// Returns true once all keys exist; false at the deadline or after stop().
  [[nodiscard]] bool wait(const std::vector<std::string>& names, Deadline deadline) const;
  /// Ends all waits, also later ones.
  void stop();

 private:
  [[nodiscard]] bool holds(const std::vector<std::string>& names) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  bool stopped_ = false;
};

}  // namespace chimera
