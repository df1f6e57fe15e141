// Prints the picture of a schedule.
#include <iostream>

#include "generate/registry.h"
#include "render/text.h"
#include "simulate/simulate.h"

int main() {
  const chimera::Schedule schedule = chimera::find_generator("chimera").generate({4, 4});
  std::cout << to_text(schedule, simulate(schedule, chimera::CostModel::uniform(schedule, {})));
}
