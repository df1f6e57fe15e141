#pragma once

#include <utility>

namespace chimera {

/// Sets a variable, and restores its earlier value at the end of the scope.
template <class Value>
class ScopedValue {
 public:
  ScopedValue(Value& variable, Value value) : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
  ScopedValue& operator=(ScopedValue&&) = delete;
  ~ScopedValue() { variable_ = std::move(before_); }

 private:
  Value& variable_;
  Value before_;
};

}  // namespace chimera
