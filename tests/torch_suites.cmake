# Registers every suite of chimera_torch_tests as one CTest test. A suite missing here
# fails TorchSuitesTest.
set(torch_suites
  BlockSumsTest
  CanonicalTest
  DataOrderTest
  DataParallelTest
  EquivalenceTest
  ExecutorTest
  GlooLossTest
  GlooTransportTest
  GroupTransportTest
  GroupsTest
  HuggingFaceTest
  InitialValuesTest
  LayersTest
  LinearTest
  MemoryMeterTest
  MemoryTest
  OptimizerTest
  OrderedSumTest
  RecorderTest
  ReportTest
  SafetensorsFileTest
  StageTest
  StepMemoryTest
  ThreadContractTest
  ThreadTransportTest
  SyncTest
  TorchSuitesTest
  TwentyStepsTest
)
foreach(suite ${torch_suites})
  add_test(NAME torch.${suite} COMMAND chimera_torch_tests --gtest_filter=${suite}.*:*/${suite}.*)
endforeach()
