#include "core/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/choices.h"
#include "core/error.h"
#include "core/printable.h"

namespace chimera {

namespace {

// nlohmann keeps the last of two equal fields without an error. Here it is one, because one of the two values would be
// ignored. The check is a pass of its own: with a callback, nlohmann's parser scans the whole enclosing array at the
// end of each object.
/// Parser events that reject duplicate fields in one object, nesting deeper than kDeepest and text that is not JSON.
class JsonCheck : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonCheck(std::string source) : source_(std::move(source)) {}

  bool null() override { return leave(); }
  bool boolean(bool /*value*/) override { return leave(); }
  bool number_integer(number_integer_t /*value*/) override { return leave(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return leave(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return leave(); }
  bool string(string_t& /*value*/) override { return leave(); }
  bool binary(binary_t& /*value*/) override { return leave(); }
  bool start_object(std::size_t /*size*/) override { return open({.is_array = false}); }
  bool start_array(std::size_t /*size*/) override { return open({.is_array = true}); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    open_.back().name = name;
    if (open_.back().names.insert(name).second) return true;
    throw ConfigError(fmt::format("{}: {}: the field is given twice; leave one of them out", source_, place()));
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    throw ConfigError(fmt::format("{}: JSON: {}", source_, parser_message(error)));
  }

 private:
  struct Container {
    bool is_array = false;
    std::size_t index = 0;  // Index of the current entry
    std::set<std::string> names = {};
    std::string name = {};  // Name of the current field
  };

  bool open(Container container) {
    constexpr std::size_t kDeepest = 100;  // Readers and printers of values recurse
    open_.push_back(std::move(container));
    if (open_.size() <= kDeepest) return true;
    throw ConfigError(fmt::format("{}: more than {} nested objects and arrays", source_, kDeepest));
  }

  bool close() {
    open_.pop_back();
    return leave();
  }

  bool leave() {
    if (!open_.empty()) ++open_.back().index;
    return true;
  }

  [[nodiscard]] std::string place() const {
    std::string text;
    for (const Container& container : open_) {
      if (container.is_array) {
        text += fmt::format("[{}]", container.index);
      } else {
        text += (text.empty() ? "" : ".") + printable(container.name);
      }
    }
    return text;
  }

  std::string source_;
  std::vector<Container> open_;
};

}  // namespace

nlohmann::json parse_json(const std::string& text, const std::string& source) {
  JsonCheck check(source);
  (void)nlohmann::json::sax_parse(text, &check);
  return nlohmann::json::parse(text);
}

std::string parser_message(const nlohmann::detail::exception& error) {
  const std::string_view what = error.what();
  const auto number = what.find("] ");
  return printable(number == what.npos ? what : what.substr(number + 2), kParserMessage);
}

JsonValue::JsonValue(const nlohmann::json& json, std::string source, std::string path)
    : json_(json), source_(std::move(source)), path_(std::move(path)) {}

void JsonValue::fail(const std::string& what) const {
  throw ConfigError(fmt::format("{}: {}: {}", source_, path_.empty() ? "top level" : path_, what));
}

void JsonValue::expect_object(const std::vector<const char*>& fields) const {
  if (!json_.is_object()) fail(fmt::format("expected an object, found {}", json_.type_name()));
  const std::vector<std::string> known(fields.begin(), fields.end());
  for (const auto& item : json_.items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      fail(unknown_name("field", item.key(), known));
    }
  }
}

bool JsonValue::has(const char* name) const { return json_.contains(name); }

JsonValue JsonValue::field(const char* name) const {
  if (!has(name)) fail(fmt::format("field '{}' is missing", name));
  return {json_[name], source_, path_.empty() ? name : path_ + "." + name};
}

std::vector<JsonValue> JsonValue::list() const {
  if (!json_.is_array()) fail(fmt::format("expected an array, found {}", json_.type_name()));
  std::vector<JsonValue> values;
  for (std::size_t i = 0; i < json_.size(); ++i) {
    values.emplace_back(json_[i], source_, fmt::format("{}[{}]", path_, i));
  }
  return values;
}

std::vector<JsonValue> JsonValue::list(std::int64_t entries, const char* of_what) const {
  auto values = list();
  if (static_cast<std::int64_t>(values.size()) != entries) {
    fail(fmt::format("{} entries; expected {}, one for each {}", values.size(), entries, of_what));
  }
  return values;
}

double JsonValue::number(double most) const {
  if (!json_.is_number()) fail(fmt::format("expected a number, found {}", json_.type_name()));
  const auto value = json_.get<double>();
  if (!std::isfinite(value) || value < 0) fail(fmt::format("expected a finite number of 0 or more, found {}", value));
  if (value > most) fail(fmt::format("expected a number of at most {:g}, found {:g}", most, value));
  return value;
}

// Numbers such as 1e3 are integers for people, so the value is tested and not its spelling.
std::int64_t JsonValue::count(const char* name, std::int64_t least) const {
  constexpr double kLargest = 1e9;
  const JsonValue entry = field(name);
  const double value = entry.number();
  if (value != std::floor(value) || value > kLargest) {
    entry.fail(fmt::format("expected a whole number of at most {}, found {}", kLargest, value));
  }
  if (value < static_cast<double>(least)) {
    entry.fail(fmt::format("expected a whole number of at least {}, found {}", least, value));
  }
  return static_cast<std::int64_t>(value);
}

std::vector<double> JsonValue::numbers(std::int64_t entries, const char* of_what) const {
  if (json_.is_number()) return std::vector<double>(static_cast<std::size_t>(entries), number());
  std::vector<double> values;
  for (const JsonValue& value : list(entries, of_what)) values.push_back(value.number());
  return values;
}

std::string JsonValue::text() const {
  if (!json_.is_string()) fail(fmt::format("expected a text, found {}", json_.type_name()));
  return json_.get<std::string>();
}

bool JsonValue::truth(const char* name) const {
  const JsonValue entry = field(name);
  if (!entry.json_.is_boolean()) entry.fail(fmt::format("expected true or false, found {}", entry.json_.type_name()));
  return entry.json_.get<bool>();
}

}  // namespace chimera
