#pragma once
// The words that the ranks of a job leave for each other while they meet.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/channel.h"

namespace chimera {

/// Values by name; any thread may use it.
class Words {
 public:
  void set(const std::string& name, std::string value);
  /// None: it is not there.
  [[nodiscard]] std::optional<std::string> find(const std::string& name) const;
  /// Adds to a number that is 0 at first, and returns it.
  std::int64_t add(const std::string& name, std::int64_t number);
  /// Whether it was there.
  bool remove(const std::string& name);
  [[nodiscard]] std::int64_t count() const;
  [[nodiscard]] bool has_all(const std::vector<std::string>& names) const;
  /// Returns once all are there: true; or at the deadline, or after stop(): false.
  [[nodiscard]] bool wait(const std::vector<std::string>& names, Deadline deadline) const;
  /// Ends all waits, for good.
  void stop();

 private:
  [[nodiscard]] bool holds(const std::vector<std::string>& names) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  bool stopped_ = false;
};

}  // namespace chimera
