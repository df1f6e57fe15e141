#pragma once
// A JSON object that carries the hash of its own text: no byte of it can change unnoticed.

#include <nlohmann/json.hpp>

#include <string>

namespace chimera {

/// The object as text, its last member `xxh3_128`: the hash of all bytes before the comma in front of it. The object,
/// which is not empty, has no such member.
[[nodiscard]] std::string sealed(const nlohmann::ordered_json& object);

/// The text of an object, which ends before the line end in front of its last brace, with the seal and the brace. Of
/// another text the result is sealed, but no object.
[[nodiscard]] std::string sealed(std::string open_object);

/// The object of a text that sealed() made, without the seal. `path` is what messages call the text. Throws
/// CheckpointError where the seal is missing or does not fit, where the text is no JSON object in UTF-8, or where it is
/// nested more than 16 deep.
[[nodiscard]] nlohmann::ordered_json unsealed(const std::string& path, const std::string& text);

}  // namespace chimera
