// Includes point down, and LibTorch begins between rooms: reads every #include below src/ and compares it with the
// floors.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace chimera {
namespace {

/// The floor of each room, from the ground up. Rooms on one floor do not know each other.
const std::map<std::string, int> kFloors = {
    {"core", 0},      {"schedule", 1},   {"generate", 2}, {"passes", 2},       {"check", 2},
    {"simulate", 2},  {"render", 3},     {"search", 3},   {"model_config", 3}, {"model", 4},
    {"data", 4},      {"launch", 4},     {"bench", 6},    {"transport", 4},    {"plan", 5},
    {"runtime", 5},   {"cuda", 5},       {"engine", 6},   {"train", 7},        {"api", 7},
    {"profile", 8},   {"tokenizer", 2},  {"tokenize", 5}, {"tensor_files", 1}, {"model_folder", 4},
    {"inference", 5}, {"checkpoint", 2}, {"report", 6},   {"playground", 7},   {"runs", 5},
    {"meeting", 1},
};

/// The rooms that use LibTorch. No other room sees anything of it, nor of them.
const std::set<std::string> kTorchRooms = {"model",  "transport", "inference", "runtime", "cuda",
                                           "engine", "train",     "api",       "profile"};

struct Edge {
  std::string from_room;
  std::string to_room;
  std::string file;
};

/// Of each include in the source files below `root`: the file's room, and what `include` captures of the line.
std::vector<Edge> include_edges(const std::filesystem::path& root, const std::regex& include) {
  std::vector<Edge> edges;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const auto extension = entry.path().extension();
    if (extension != ".h" && extension != ".cc") continue;
    const std::string room = std::filesystem::relative(entry.path(), root).begin()->string();
    std::ifstream file(entry.path());
    std::smatch match;
    for (std::string line; std::getline(file, line);) {
      if (std::regex_search(line, match, include)) edges.push_back({room, match[1], entry.path().string()});
    }
  }
  return edges;
}

/// From room to room.
std::vector<Edge> room_edges() {
  return include_edges(CHIMERA_SOURCE_DIR "/src", std::regex(R"re(^\s*#\s*include\s+"([a-z_]+)/[^"]+")re"));
}

/// From rooms to LibTorch's own headers.
std::vector<Edge> torch_edges() {
  return include_edges(CHIMERA_SOURCE_DIR "/src", std::regex(R"re(^\s*#\s*include\s+[<"](ATen|c10|torch)/)re"));
}

bool points_down(const Edge& edge) {
  if (edge.from_room == edge.to_room) return true;
  return kFloors.at(edge.to_room) < kFloors.at(edge.from_room);
}

bool brings_torch_below_its_line(const Edge& edge) {
  return kTorchRooms.contains(edge.to_room) && !kTorchRooms.contains(edge.from_room);
}

TEST(FloorsTest, EveryRoomHasAFloor) {
  for (const auto& entry : std::filesystem::directory_iterator(CHIMERA_SOURCE_DIR "/src")) {
    EXPECT_TRUE(kFloors.contains(entry.path().filename().string())) << entry.path();
  }
}

TEST(FloorsTest, NoIncludePointsUpward) {
  const auto edges = room_edges();
  EXPECT_GT(edges.size(), 20U) << "the reader of includes found next to nothing";
  for (const Edge& edge : edges) {
    ASSERT_TRUE(kFloors.contains(edge.to_room)) << edge.file << " includes from unknown room " << edge.to_room;
    EXPECT_TRUE(points_down(edge)) << edge.file << ": " << edge.from_room << " includes " << edge.to_room;
  }
}

TEST(FloorsTest, RecognisesAnUpwardAndASidewaysEdge) {
  EXPECT_FALSE(points_down({"schedule", "simulate", ""}));
  EXPECT_FALSE(points_down({"check", "simulate", ""}));
  EXPECT_TRUE(points_down({"runtime", "transport", ""}));
}

TEST(FloorsTest, LibTorchBeginsBetweenRooms) {
  const auto edges = torch_edges();
  EXPECT_GT(edges.size(), 20U) << "the reader of includes found next to nothing";
  for (const Edge& edge : edges) {
    EXPECT_TRUE(kTorchRooms.contains(edge.from_room)) << edge.file << " includes " << edge.to_room;
  }
  for (const Edge& edge : room_edges()) {
    EXPECT_FALSE(brings_torch_below_its_line(edge))
        << edge.file << ": " << edge.from_room << " includes " << edge.to_room;
  }
}

TEST(FloorsTest, RecognisesARoomThatBringsLibTorchBelowItsLine) {
  EXPECT_TRUE(brings_torch_below_its_line({"plan", "model", ""}));
  EXPECT_FALSE(brings_torch_below_its_line({"plan", "model_config", ""}));
  EXPECT_FALSE(brings_torch_below_its_line({"runtime", "model", ""}));
}

}  // namespace
}  // namespace chimera
