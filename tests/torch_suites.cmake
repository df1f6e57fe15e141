# Registers every suite of chimera_torch_tests as one CTest test. A suite missing here
# fails TorchSuitesTest.
set(torch_suites
  BlockSumsTest
  CanonicalTest
  ClockOffsetTest
  DataOrderTest
  DataParallelTest
  DropoutTest
  EquivalenceTest
  ExecutorTest
  GlooLossTest
  GlooTransportTest
  GroupTransportTest
  GroupsTest
  HuggingFaceTest
  InitialValuesTest
  KeyedDropoutTest
  LayersTest
  LinearTest
  MeasuredCostsTest
  MeasuredStepTest
  MemoryMeterTest
  MemoryTest
  MemoryTimelineTest
  ObservationTest
  OpTimesTest
  OptimizerTest
  OrderedSumTest
  RecomputationTest
  RecorderTest
  ReportTest
  SafetensorsFileTest
  StageTest
  StepMemoryTest
  SyncTest
  ThreadContractTest
  ThreadTransportTest
  TiedTest
  TorchSuitesTest
  TracerTest
  TrainingDropoutTest
  TwentyStepsTest
)
foreach(suite ${torch_suites})
  add_test(NAME torch.${suite} COMMAND chimera_torch_tests --gtest_filter=${suite}.*:*/${suite}.*)
endforeach()
