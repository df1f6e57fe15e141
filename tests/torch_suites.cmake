# Registers every suite of chimera_torch_tests as one CTest test. A suite missing here fails the test of the same name.
set(torch_suites
  GlooLossTest
  GlooTransportTest
  GroupsTest
  HuggingFaceTest
  InitialValuesTest
  LayersTest
  MemoryMeterTest
  MemoryTest
  RecorderTest
  SafetensorsFileTest
  StageTest
  StepMemoryTest
  ThreadContractTest
  ThreadTransportTest
)
foreach(suite ${torch_suites})
  add_test(NAME torch.${suite} COMMAND chimera_torch_tests --gtest_filter=${suite}.*:*/${suite}.*)
endforeach()
