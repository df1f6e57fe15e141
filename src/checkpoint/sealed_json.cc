#include "checkpoint/sealed_json.h"

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <utility>

#include "checkpoint/block_hashes.h"
#include "checkpoint/error.h"
#include "core/printable.h"

namespace chimera {
namespace {

constexpr std::string_view kBeforeSeal = ",\n  \"xxh3_128\": \"";
constexpr std::string_view kAfterSeal = "\"\n}\n";
constexpr std::size_t kSealDigits = 32;
constexpr std::size_t kSealBytes = kBeforeSeal.size() + kSealDigits + kAfterSeal.size();
constexpr int kMostDepth = 16;

std::string seal_of(std::string_view text) {
  return std::string(kBeforeSeal) + to_text(hash128(std::as_bytes(std::span(text)))) + std::string(kAfterSeal);
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw CheckpointError(fmt::format("{}: {}", path, why));
}

}  // namespace

std::string sealed(const nlohmann::ordered_json& object) {
  constexpr int kIndent = 2;
  std::string text = object.dump(kIndent);
  text.resize(text.size() - std::string_view("\n}").size());
  return sealed(std::move(text));
}

std::string sealed(std::string open_object) { return open_object + seal_of(open_object); }

nlohmann::ordered_json unsealed(const std::string& path, const std::string& text) {
  if (text.size() < kSealBytes) refuse(path, "is cut off");
  const std::string_view body = std::string_view(text).substr(0, text.size() - kSealBytes);
  if (text.substr(body.size()) != seal_of(body)) refuse(path, "differs from the hash at its end");
  const auto require_shallow = [&](int depth, nlohmann::ordered_json::parse_event_t, nlohmann::ordered_json&) {
    if (depth > kMostDepth) refuse(path, fmt::format("is nested more than {} deep", kMostDepth));
    return true;
  };
  try {
    nlohmann::ordered_json object = nlohmann::ordered_json::parse(std::string(body) + "\n}", require_shallow);
    if (!object.is_object()) refuse(path, "is no JSON object");
    return object;
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("is no JSON object ({})", printable(error.what(), kParserMessage)));
  }
}

}  // namespace chimera
