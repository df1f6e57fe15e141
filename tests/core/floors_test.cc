// Reads every #include below src/ and apps/. Includes point to lower floors of the table in src/README.md, and only
// rooms marked there use LibTorch. Includes between the folders of a room follow a table here. Files form no circle.

#include <gtest/gtest.h>

#include <algorithm>
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
  std::string from;
  std::string to;
  std::string file;
};

/// Returns the edge of each include in the source files below `root`: from the file's first folder to the capture of
/// `include`.
std::vector<Edge> include_edges(const std::filesystem::path& root, const std::regex& include) {
  std::vector<Edge> edges;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const auto extension = entry.path().extension();
    if (extension != ".h" && extension != ".cc") continue;
    const std::string from = std::filesystem::relative(entry.path(), root).begin()->string();
    std::ifstream file(entry.path());
    std::smatch match;
    for (std::string line; std::getline(file, line);) {
      if (std::regex_search(line, match, include)) edges.push_back({from, match[1], entry.path().string()});
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

using Folders = std::map<std::string, std::set<std::string>>;

/// [room][folder]: the folders of the same room that its files may include.
const std::map<std::string, Folders> kFolders = {
    {"train",
     {{"setup", {}},
      {"recover", {"setup"}},
      {"observe", {"setup"}},
      {"export", {"setup", "recover"}},
      {"loop", {"setup", "recover", "observe", "export"}}}},
    {"launch", {{"flight", {}}, {"local", {"flight"}}, {"hosts", {"local", "flight"}}}},
};

/// From folder to folder of `room`.
std::vector<Edge> folder_edges(const std::string& room) {
  return include_edges(testing::source_path("/src/") + room,
                       std::regex(R"re(^\s*#\s*include\s+")re" + room + R"re(/([a-z_]+)/[^"]+")re"));
}

bool may_include(const Folders& folders, const std::string& from, const std::string& to) {
  const auto found = folders.find(from);
  return found != folders.end() && (from == to || found->second.contains(to));
}

bool points_down(const Edge& edge) {
  if (edge.from == edge.to) return true;
  return kRooms.floors.at(edge.to) < kRooms.floors.at(edge.from);
}

bool brings_torch_below_its_line(const Edge& edge) {
  return kRooms.with_libtorch.contains(edge.to) && !kRooms.with_libtorch.contains(edge.from);
}

/// Files by their path without extension, so that a header and its source are one file: what each includes.
using FileGraph = std::map<std::string, std::set<std::string>>;

/// Adds the files below `root`, which includes name relative to it.
void add_files(const std::filesystem::path& root, FileGraph& graph) {
  const std::regex include(R"re(^\s*#\s*include\s+"([^"]+)\.h")re");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".h" && entry.path().extension() != ".cc") continue;
    const std::string name = std::filesystem::relative(entry.path(), root).replace_extension().string();
    std::ifstream file(entry.path());
    std::smatch match;
    for (std::string line; std::getline(file, line);) {
      if (std::regex_search(line, match, include) && match[1] != name) graph[name].insert(match[1]);
    }
  }
}

/// Continues the path to a file that is on it already, and returns that circle: `a -> b -> a`. Empty if there is none.
std::string find_circle(const FileGraph& graph, std::vector<std::string>& path, std::set<std::string>& done) {
  const std::string file = path.back();
  if (const auto first = std::ranges::find(path, file); first != path.end() - 1) {
    std::string circle = *first;
    for (auto next = first + 1; next != path.end(); ++next) circle += " -> " + *next;
    return circle;
  }
  const auto found = graph.find(file);
  if (found != graph.end() && !done.contains(file)) {
    for (const std::string& included : found->second) {
      path.push_back(included);
      if (std::string circle = find_circle(graph, path, done); !circle.empty()) return circle;
      path.pop_back();
    }
  }
  done.insert(file);
  return "";
}

std::string find_circle(const FileGraph& graph) {
  std::set<std::string> done;
  for (const auto& [file, includes] : graph) {
    std::vector<std::string> path = {file};
    if (std::string circle = find_circle(graph, path, done); !circle.empty()) return circle;
  }
  return "";
}

TEST(FloorsTest, FilesFormNoCircle) {
  for (const char* root : {"/src", "/apps"}) {
    FileGraph graph;
    add_files(testing::source_path(root), graph);
    EXPECT_GT(graph.size(), 40U) << "the reader of includes found next to nothing in " << root;
    EXPECT_EQ(find_circle(graph), "") << root;
  }
}

TEST(FloorsTest, FindsACircleOfFiles) {
  EXPECT_EQ(find_circle({{"a", {"b", "c"}}, {"b", {"c"}}, {"c", {}}}), "");
  EXPECT_EQ(find_circle({{"a", {"b"}}, {"b", {"d", "c"}}, {"c", {"b"}}}), "b -> c -> b");
}

TEST(FloorsTest, EveryRoomHasAFloor) {
  EXPECT_GT(kRooms.floors.size(), 20U) << "the table of src/README.md could not be read";
  for (const auto& [room, floor] : kRooms.floors)
    EXPECT_TRUE(std::filesystem::is_directory(testing::source_path("/src/") + room)) << room;
  for (const auto& entry : std::filesystem::directory_iterator(testing::source_path("/src"))) {
    if (entry.is_directory()) EXPECT_TRUE(kRooms.floors.contains(entry.path().filename().string())) << entry.path();
  }
}

TEST(FloorsTest, NoIncludePointsUpward) {
  const auto edges = room_edges();
  EXPECT_GT(edges.size(), 20U) << "the reader of includes found next to nothing";
  for (const Edge& edge : edges) {
    ASSERT_TRUE(kRooms.floors.contains(edge.to)) << edge.file << " includes from unknown room " << edge.to;
    EXPECT_TRUE(points_down(edge)) << edge.file << ": " << edge.from << " includes " << edge.to;
  }
}

TEST(FloorsTest, FindsAnUpwardAndASidewaysEdge) {
  EXPECT_FALSE(points_down({"schedule", "simulate", ""}));
  EXPECT_FALSE(points_down({"check", "simulate", ""}));
  EXPECT_TRUE(points_down({"runtime", "transport", ""}));
}

TEST(FloorsTest, FoldersOfARoomIncludeOnlyFoldersOfTheTable) {
  for (const auto& [room, folders] : kFolders) {
    const auto edges = folder_edges(room);
    EXPECT_GT(edges.size(), 20U) << "the reader of includes found next to nothing in " << room;
    for (const Edge& edge : edges)
      EXPECT_TRUE(may_include(folders, edge.from, edge.to))
          << edge.file << ": " << room << "/" << edge.from << " includes " << room << "/" << edge.to;
  }
}

TEST(FloorsTest, RecognisesAFolderThatIncludesAnotherOutsideTheTable) {
  EXPECT_FALSE(may_include(kFolders.at("train"), "setup", "loop"));
  EXPECT_FALSE(may_include(kFolders.at("train"), "observe", "loop"));
  EXPECT_FALSE(may_include(kFolders.at("train"), "unknown", "setup"));
  EXPECT_TRUE(may_include(kFolders.at("train"), "loop", "setup"));
}

TEST(FloorsTest, LibTorchBeginsBetweenRooms) {
  const auto edges = torch_edges();
  EXPECT_GT(edges.size(), 20U) << "the reader of includes found next to nothing";
  for (const Edge& edge : edges)
    EXPECT_TRUE(kRooms.with_libtorch.contains(edge.from)) << edge.file << " includes " << edge.to;
  for (const Edge& edge : room_edges())
    EXPECT_FALSE(brings_torch_below_its_line(edge)) << edge.file << ": " << edge.from << " includes " << edge.to;
}

TEST(FloorsTest, FindsARoomThatUsesLibTorchBelowItsLine) {
  EXPECT_TRUE(brings_torch_below_its_line({"plan", "model", ""}));
  EXPECT_FALSE(brings_torch_below_its_line({"plan", "model_config", ""}));
  EXPECT_FALSE(brings_torch_below_its_line({"runtime", "model", ""}));
}

}  // namespace
}  // namespace chimera
