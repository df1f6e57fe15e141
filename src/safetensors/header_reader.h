#pragma once
// The header of a safetensors file, event by event: nothing is kept of it but the table.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "safetensors/tensor_table.h"

namespace chimera {

/// Hears nlohmann's SAX events and adds to a table. Throws ConfigError for what no header has.
class HeaderReader {
 public:
  HeaderReader(std::string path, TensorTable& table) : path_(std::move(path)), table_(table) {}

  // The events, as nlohmann names them.
  bool null() { unexpected("null"); }
  bool boolean(bool /*value*/) { unexpected("a boolean"); }
  bool number_integer(std::int64_t /*value*/) { unexpected("a negative number"); }
  bool number_unsigned(std::uint64_t value);
  bool number_float(double /*value*/, const std::string& /*text*/) { unexpected("a fraction or a number above 2^64"); }
  bool string(std::string& value);
  bool binary(nlohmann::json::binary_t& /*value*/) { unexpected("bytes"); }
  bool start_object(std::size_t /*size*/);
  bool key(std::string& name);
  bool end_object();
  bool start_array(std::size_t /*size*/);
  bool end_array();
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error);

 private:
  /// What the next value belongs to.
  enum class Where : std::uint8_t { Start, Tensors, Metadata, Tensor, Shape, Offsets };
  enum class Field : std::uint8_t { None, Type, Shape, Offsets };

  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void unexpected(const char* found) const;
  void begin_field(Field field);
  void add_tensor();
  [[nodiscard]] std::uint64_t bytes_of_shape() const;

  std::string path_;
  TensorTable& table_;
  Where where_ = Where::Start;
  Field field_ = Field::None;
  std::uint8_t fields_seen_ = 0;
  bool metadata_seen_ = false;
  std::string name_;  // of the tensor or metadata text under way
  ElementType type_ = ElementType::F32;
  std::vector<std::uint64_t> shape_;
  std::vector<std::uint64_t> offsets_;
};

/// A name from a file as messages show it.
[[nodiscard]] std::string shown_name(std::string_view name);
/// What nlohmann's parser found, without its quotation of the text.
[[nodiscard]] std::string json_fault(const nlohmann::detail::exception& error);

}  // namespace chimera
