#include "safetensors/json_bytes.h"

#include "core/printable.h"

namespace chimera {

std::string shown_name(std::string_view name) {
  constexpr std::size_t kLongest = 120;
  return fmt::format("'{}'", printable(name, kLongest));
}

std::string json_fault(const nlohmann::detail::exception& error) {
  std::string what = error.what();  // "[...] parse error at line 1, column 2: reason; last read: 'text'"
  if (const auto colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
  if (const auto token = what.find("; last read"); token != std::string::npos) what.erase(token);
  constexpr std::size_t kLongest = 200;
  return "no JSON: " + what.substr(0, kLongest);
}

}  // namespace chimera
