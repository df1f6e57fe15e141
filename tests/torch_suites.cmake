# Registers every suite of chimera_torch_tests as one CTest test. A suite missing here
# fails TorchSuitesTest.
set(torch_suites
  BlockSumsTest
  CanonicalTest
  DataOrderTest
  DataParallelTest
  DifferingRanksTest
  DropoutTest
  EquivalenceTest
  ExecutorTest
  FingerprintTest
  GlooLossTest
  GlooTransportTest
  GroupTransportTest
  GroupsTest
  HeadroomTest
  HuggingFaceTest
  InitialValuesTest
  KeyedDropoutTest
  LayersTest
  LinearTest
  MemoryMeterTest
  MemoryTest
  MessageTest
  NonFiniteTest
  OpTimesTest
  OptimizerTest
  OrderedSumTest
  RecomputationTest
  RecorderTest
  ReportTest
  SafetensorsFileTest
  StageTest
  StepMemoryTest
  SwappedMessagesTest
  SyncTest
  ThreadContractTest
  ThreadTransportTest
  TiedTest
  TorchSuitesTest
  TrainingDropoutTest
  TwentyStepsTest
)
foreach(suite ${torch_suites})
  add_test(NAME torch.${suite} COMMAND chimera_torch_tests --gtest_filter=${suite}.*:*/${suite}.*)
endforeach()
