// main() of chimera_torch_tests, which CTest starts once for each suite.

#include <gmock/gmock.h>

#include "core/console.h"
#include "support/training.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
#ifdef CHIMERA_SANITIZED
  return code;  // leaks are looked for at exit
#else
  chimera::testing::remove_text_file();
  chimera::exit_now(code,
                    chimera::kDrainAfterFailure);  // LibTorch takes longer to unregister its operators than to start
#endif
}
