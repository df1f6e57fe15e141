# Registers every suite of chimera_torch_tests as one CTest test. A suite missing here
# fails TorchSuitesTest.
set(torch_suites
  BlockSumsTest
  CanonicalTest
  DataOrderTest
  DataParallelTest
  DropoutTest
  EquivalenceTest
  ExecutorTest
  FitTest
  GlooLossTest
  GlooTransportTest
  GroupTransportTest
  GroupsTest
  HuggingFaceTest
  InitialValuesTest
  KeyedDropoutModuleTest
  KeyedDropoutTest
  LayersTest
  LinearTest
  MemoryMeterTest
  MemoryTest
  ModuleStageTest
  OpTimesTest
  OptimizerTest
  OrderedSumTest
  RecomputationTest
  RecorderTest
  ReportTest
  SafetensorsFileTest
  SplitBackwardTest
  StageTest
  StepMemoryTest
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
