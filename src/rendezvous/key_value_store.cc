#include "rendezvous/key_value_store.h"

#include <algorithm>
#include <utility>

#include "core/choices.h"

namespace chimera {

void Words::set(const std::string& name, std::string value) {
  const std::scoped_lock lock(mutex_);
  values_[name] = std::move(value);
  changed_.notify_all();
}

std::optional<std::string> Words::find(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::int64_t Words::add(const std::string& name, std::int64_t number) {
  const std::scoped_lock lock(mutex_);
  const auto old = parse_number<std::int64_t>(values_[name]).value_or(0);
  // Overflow wraps around instead of being undefined.
  const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(old) + static_cast<std::uint64_t>(number));
  values_[name] = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

bool Words::remove(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  return values_.erase(name) > 0;
}

std::int64_t Words::count() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::int64_t>(values_.size());
}

bool Words::holds(const std::vector<std::string>& names) const {
  return std::ranges::all_of(names, [&](const std::string& name) { return values_.contains(name); });
}

bool Words::has_all(const std::vector<std::string>& names) const {
  const std::scoped_lock lock(mutex_);
  return holds(names);
}

bool Words::wait(const std::vector<std::string>& names, Deadline deadline) const {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return stopped_ || holds(names); });
  return holds(names);
}

void Words::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace chimera
