#pragma once

// Reads a request from a JSON object (answers/door.h). A field that is null is absent.

#include <string>
#include <utility>
#include <vector>

#include "answers/door.h"
#include "core/json_value.h"

namespace chimera {

class JsonDoor : public Door {
 public:
  /// `others` are fields that the caller reads itself.
  explicit JsonDoor(JsonValue object, std::vector<std::string> others = {})
      : object_(std::move(object)), names_(std::move(others)) {}

  void text(const Field& field, const Take& take) override;
  void document(const Field& field, Document& document) override;
  void object(const char* name, const std::function<void(Door&)>& visit) override;
  void object_without_flags(const char* name, const std::function<void(Door&)>& visit) override { object(name, visit); }

  /// Throws ConfigError if the object has a field that was not visited.
  void finish() const;

 private:
  [[nodiscard]] std::optional<JsonValue> find(const std::string& name);

  JsonValue object_;
  std::vector<std::string> names_;
};

/// Returns the request with the fields of a JSON object. `others` are further fields of the object.
template <class Request>
[[nodiscard]] Request read_request(const JsonValue& json, std::vector<std::string> others) {
  Request request;
  JsonDoor door(json, std::move(others));
  request.visit(door);
  door.finish();
  return request;
}

}  // namespace chimera
