#include "hugging_face/find_model.h"

#include <filesystem>

#include "hugging_face/model_folder.h"

namespace chimera {

ModelConfig find_model_or_folder(const std::string& name) {
  std::error_code error;
  return std::filesystem::is_directory(name, error) ? ModelFolder(name).model() : find_model(name);
}

}  // namespace chimera
