#include "rendezvous/key_value_store.h"

#include <algorithm>
#include <utility>

#include "core/choices.h"

namespace chimera {

void KeyValueStore::set(const std::string& name, std::string value) {
  const std::scoped_lock lock(mutex_);
  values_[name] = std::move(value);
  changed_.notify_all();
}

std::optional<std::string> KeyValueStore::find(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::int64_t KeyValueStore::add(const std::string& name, std::int64_t number) {
  const std::scoped_lock lock(mutex_);
  const auto old = parse_number<std::int64_t>(values_[name]).value_or(0);
  // Overflow wraps around.
  const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(old) + static_cast<std::uint64_t>(number));
  values_[name] = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

bool KeyValueStore::remove(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  return values_.erase(name) > 0;
}

std::int64_t KeyValueStore::count() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::int64_t>(values_.size());
}

bool KeyValueStore::holds(const std::vector<std::string>& names) const {
  return std::ranges::all_of(names, [&](const std::string& name) { return values_.contains(name); });
}

bool KeyValueStore::has_all(const std::vector<std::string>& names) const {
  const std::scoped_lock lock(mutex_);
  return holds(names);
}

bool KeyValueStore::wait(const std::vector<std::string>& names, Deadline deadline) const {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return stopped_ || holds(names); });
  return holds(names);
}

void KeyValueStore::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace chimera
