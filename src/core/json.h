#pragma once
// Wrappers of nlohmann's JSON parser and serializer, so that these large templates are compiled only once. json_value.h
// reads JSON files of users, with errors that name the file.

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace chimera {

/// Parses JSON. Throws nlohmann::json::parse_error.
[[nodiscard]] nlohmann::json read_json(std::string_view text);
/// Does the same, but keeps the order of the members of objects.
[[nodiscard]] nlohmann::ordered_json read_ordered_json(std::string_view text);
/// Returns a value with is_discarded() if the text is not JSON.
[[nodiscard]] nlohmann::json try_json(std::string_view text);

enum class JsonEncoding { Utf8, Ascii };  ///< Ascii escapes all other characters

/// Returns one line without a line end if `indent` is -1, else lines with `indent` spaces per level. Bytes that are not
/// UTF-8 become U+FFFD, because file names and arguments may hold any bytes.
[[nodiscard]] std::string json_text(const nlohmann::json& json, int indent = -1,
                                    JsonEncoding encoding = JsonEncoding::Utf8);
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& json, int indent = -1,
                                    JsonEncoding encoding = JsonEncoding::Utf8);

/// Returns a report as lines of JSON, indented by two spaces, with a line end. Whole numbers in a field whose name ends
/// in `bytes` or `flops`, at any depth, are written as integers.
[[nodiscard]] std::string json_report(nlohmann::ordered_json report);

/// Returns the words as a name of a field: `tensor_parallel_sums` for `tensor-parallel sums`.
[[nodiscard]] std::string json_key(std::string words);

/// Returns the text of a finite number. It reads back as the same double, and has a fraction or an exponent, so that
/// JSON readers take it for a float.
[[nodiscard]] std::string json_number(double value);

}  // namespace chimera
