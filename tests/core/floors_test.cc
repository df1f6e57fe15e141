// Reads every #include below src/ and compares it with the table of floors in src/README.md: includes point to lower
// floors, and only rooms marked in the table use LibTorch.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "support/paths.h"

namespace chimera {
namespace {

struct Rooms {
  std::map<std::string, int> floors;
  std::set<std::string> with_libtorch;
};

/// Returns the table of src/README.md.
Rooms read_rooms() {
  Rooms rooms;
  std::ifstream file(testing::source_path("/src/README.md"));
  const std::regex row(R"re(^\| (\d+) \| `([a-z_]+)` \| (yes)? ?\|)re");
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (!std::regex_search(line, match, row)) continue;
    rooms.floors[match[2]] = std::stoi(match[1]);
    if (match[3].matched) rooms.with_libtorch.insert(match[2]);
  }
  return rooms;
}

const Rooms kRooms = read_rooms();

struct Edge {
  std::string from_room;
  std::string to_room;
  std::string file;
};

/// Edges of the source files below `root`: the file's room, and the text that `include` captures.
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

/// Edges from room to room.
std::vector<Edge> room_edges() {
  return include_edges(testing::source_path("/src"), std::regex(R"re(^\s*#\s*include\s+"([a-z_]+)/[^"]+")re"));
}

/// Edges from rooms to LibTorch's headers.
std::vector<Edge> torch_edges() {
  return include_edges(testing::source_path("/src"), std::regex(R"re(^\s*#\s*include\s+[<"](ATen|c10|torch)/)re"));
}

bool points_down(const Edge& edge) {
  if (edge.from_room == edge.to_room) return true;
  return kRooms.floors.at(edge.to_room) < kRooms.floors.at(edge.from_room);
}

bool brings_torch_below_its_line(const Edge& edge) {
  return kRooms.with_libtorch.contains(edge.to_room) && !kRooms.with_libtorch.contains(edge.from_room);
}

TEST(FloorsTest, EveryRoomHasAFloor) {
  EXPECT_GT(kRooms.floors.size(), 20U) << "the table of src/README.md could not be read";
  for (const auto& [room, floor] : kRooms.floors) {
    EXPECT_TRUE(std::filesystem::is_directory(testing::source_path("/src/") + room)) << room;
  }
  for (const auto& entry : std::filesystem::directory_iterator(testing::source_path("/src"))) {
    if (entry.is_directory()) EXPECT_TRUE(kRooms.floors.contains(entry.path().filename().string())) << entry.path();
  }
}

TEST(FloorsTest, NoIncludePointsUpward) {
  const auto edges = room_edges();
  EXPECT_GT(edges.size(), 20U) << "the reader of includes found next to nothing";
  for (const Edge& edge : edges) {
    ASSERT_TRUE(kRooms.floors.contains(edge.to_room)) << edge.file << " includes from unknown room " << edge.to_room;
    EXPECT_TRUE(points_down(edge)) << edge.file << ": " << edge.from_room << " includes " << edge.to_room;
  }
}

TEST(FloorsTest, FindsAnUpwardAndASidewaysEdge) {
  EXPECT_FALSE(points_down({"schedule", "simulate", ""}));
  EXPECT_FALSE(points_down({"check", "simulate", ""}));
  EXPECT_TRUE(points_down({"runtime", "transport", ""}));
}

TEST(FloorsTest, LibTorchBeginsBetweenRooms) {
  const auto edges = torch_edges();
  EXPECT_GT(edges.size(), 20U) << "the reader of includes found next to nothing";
  for (const Edge& edge : edges) {
    EXPECT_TRUE(kRooms.with_libtorch.contains(edge.from_room)) << edge.file << " includes " << edge.to_room;
  }
  for (const Edge& edge : room_edges()) {
    EXPECT_FALSE(brings_torch_below_its_line(edge))
        << edge.file << ": " << edge.from_room << " includes " << edge.to_room;
  }
}

TEST(FloorsTest, FindsARoomThatUsesLibTorchBelowItsLine) {
  EXPECT_TRUE(brings_torch_below_its_line({"plan", "model", ""}));
  EXPECT_FALSE(brings_torch_below_its_line({"plan", "model_config", ""}));
  EXPECT_FALSE(brings_torch_below_its_line({"runtime", "model", ""}));
}

}  // namespace
}  // namespace chimera
