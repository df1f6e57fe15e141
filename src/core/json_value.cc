#include "core/json_value.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/choices.h"
#include "core/mapped.h"
#include "core/printable.h"
#include "core/reject.h"

namespace chimera {

namespace {

using Json = nlohmann::json;

// nlohmann's own parser keeps the last of two equal fields without an error. Here it is one, because one of the two
// values would be ignored. A callback of that parser could see it, but with a callback the parser scans the whole
// enclosing array at the end of each object. The values are therefore built here.
/// Parser events that build a value. Rejects duplicate fields in one object, nesting deeper than kDeepest and text that
/// is not JSON.
class JsonBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit JsonBuilder(std::string source) : source_(std::move(source)) {}

  Json result() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t /*size*/) override { return open(Json::value_t::object); }
  bool start_array(std::size_t /*size*/) override { return open(Json::value_t::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const auto [field, is_new] = open_.back().value->get_ref<Json::object_t&>().try_emplace(std::move(name));
    open_.back().field = &*field;
    if (is_new) return true;
    reject("{}: {}: the field is given twice; leave one of them out", source_, place());
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    reject("{}: JSON: {}", source_, parser_message(error));
  }

 private:
  // Pointers stay valid, because nothing is added to the containers around the innermost one while it is open.
  struct Container {
    Json* value;
    Json::object_t::value_type* field = nullptr;  // Current field of an object
  };

  // Adds a value to the innermost open container, or makes it the whole document. Returns its place.
  Json& put(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& container = *open_.back().value;
    return container.is_array() ? container.emplace_back(std::move(value))
                                : open_.back().field->second = std::move(value);
  }

  bool add(Json value) {
    put(std::move(value));
    return true;
  }

  bool open(Json::value_t kind) {
    constexpr std::size_t kDeepest = 100;  // Readers and printers of values recurse
    open_.push_back({&put(Json(kind))});
    if (open_.size() <= kDeepest) return true;
    reject("{}: more than {} nested objects and arrays", source_, kDeepest);
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  /// Returns the path of the current field.
  [[nodiscard]] std::string place() const {
    std::string text;
    for (const Container& container : open_)
      if (container.value->is_array())
        text += fmt::format("[{}]", container.value->size() - 1);
      else
        text += (text.empty() ? "" : ".") + printable(container.field->first);
    return text;
  }

  std::string source_;
  Json root_;
  std::vector<Container> open_;
};

/// Returns the place of a value in `json`, such as `.stages[2]`; nothing if it is not there. Only an error needs it, so
/// that the values of large files need not keep their places.
std::optional<std::string> find_place(const Json& json, const Json& value) {
  if (&json == &value) return "";
  if (!json.is_structured()) return std::nullopt;
  for (const auto& [name, inner] : json.items())
    if (const auto place = find_place(inner, value)) return (json.is_array() ? "[" + name + "]" : "." + name) + *place;
  return std::nullopt;
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& source) {
  // The parser would take the first zero byte for the end, and ignore what follows.
  if (text.find('\0') != text.npos) reject("{}: JSON: has a zero byte", source);
  JsonBuilder builder(source);
  (void)Json::sax_parse(text, &builder);
  return builder.result();
}

std::string parser_message(const nlohmann::detail::exception& error) {
  const std::string_view what = error.what();
  const auto number = what.find("] ");
  return printable(number == what.npos ? what : what.substr(number + 2), kParserMessage);
}

JsonValue::JsonValue(const nlohmann::json& json, std::string source, std::string path)
    : json_(json), document_(std::make_shared<const Document>(Document{json, std::move(source), std::move(path)})) {}

void JsonValue::fail(const std::string& what) const {
  const auto& [root, source, root_path] = *document_;
  std::string path = root_path + find_place(root, json_).value_or("");
  if (path.starts_with('.')) path.erase(0, 1);
  if (source.empty()) throw ConfigError(path.empty() ? what : path + ": " + what);
  throw ConfigError(fmt::format("{}: {}: {}", source, path.empty() ? "top level" : path, what));
}

void JsonValue::expect_object(const std::vector<const char*>& fields) const {
  if (!json_.is_object()) fail(fmt::format("expected an object, found {}", json_.type_name()));
  for (const auto& item : json_.items()) {
    if (std::ranges::find(fields, item.key()) != fields.end()) continue;
    fail(unknown_name("field", printable(item.key()), std::vector<std::string>(fields.begin(), fields.end())));
  }
}

bool JsonValue::has(const char* name) const { return json_.contains(name); }

JsonValue JsonValue::field(const char* name) const {
  const auto found = json_.find(name);
  if (found == json_.end()) fail(fmt::format("field '{}' is missing", name));
  return {*found, document_};
}

std::vector<JsonValue> JsonValue::list() const {
  if (!json_.is_array()) fail(fmt::format("expected an array, found {}", json_.type_name()));
  std::vector<JsonValue> values;
  values.reserve(json_.size());
  for (const Json& value : json_) values.push_back({value, document_});
  return values;
}

std::vector<JsonValue> JsonValue::list(std::int64_t entries, const char* of_what) const {
  auto values = list();
  if (static_cast<std::int64_t>(values.size()) != entries)
    fail(fmt::format("{} entries; expected {}, one for each {}", values.size(), entries, of_what));
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
  if (value != std::floor(value) || value > kLargest)
    entry.fail(fmt::format("expected a whole number of at most {}, found {}", kLargest, value));
  if (value < static_cast<double>(least))
    entry.fail(fmt::format("expected a whole number of at least {}, found {}", least, value));
  return static_cast<std::int64_t>(value);
}

std::vector<double> JsonValue::numbers(std::int64_t entries, const char* of_what) const {
  if (json_.is_number()) return std::vector<double>(static_cast<std::size_t>(entries), number());
  return mapped<double>(list(entries, of_what), [](const JsonValue& value) { return value.number(); });
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
