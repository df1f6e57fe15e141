"use strict";
// The lessons in their order. `start` is a schedule by name or text with costs; `controls` are what the reader can
// change besides the order of ops; `solution` replaces parts of the start.

const kFourWorkers = {stages: 4, micro_batches: 4};
const kEightBatches = {stages: 4, micro_batches: 8};
const kEqualStages = Array.from({length: 4}, () => ({forward: 1, input_gradient: 1, weight_gradient: 1}));
const kEdit = "Drag a box along its row, or by keys: Tab to the chart, arrows select, Shift and arrows move.";

const kLessons = [
  {
    title: "Why workers wait",
    text: "A model is cut into four stages, one on each worker, and the samples into micro-batches 0 to 3. 2F1 is " +
        "the forward of stage 2 on micro-batch 1. It needs 1F1, so worker 2 waits for worker 1. Backwards " +
        "(B) travel back. Gray time is idle: a bubble. Worker 3 runs 3F3 first, so all wait. " +
        `Move 3F3 behind 3F2. ${kEdit}`,
    goal: "makespan<=21",
    start: {text: "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n" +
                  "2F0,2F1,2F2,2F3,2B0,2B1,2B2,2B3\n3F3,3F0,3F1,3F2,3B0,3B1,3B2,3B3\n"},
    hint: "3F3 can be the last forward of worker 3. A tap on a box shows its name.",
    solution: {text: "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n" +
                     "2F0,2F1,2F2,2F3,2B0,2B1,2B2,2B3\n3F0,3F1,3F2,3F3,3B0,3B1,3B2,3B3\n"},
  },
  {
    title: "Earlier backwards, less memory",
    text: "This order is GPipe's: all forwards, then all backwards. A micro-batch between its forward and " +
        "its backward is in flight: the worker must keep its activations (what the backward needs), here for eight " +
        "micro-batches at once. If a backward runs as soon as it can, its activations can go. The makespan does " +
        "not change. " +
        "In the list Schedule, choose 1f1b: one forward, then one backward.",
    goal: "makespan<=33,in-flight<=4",
    start: {schedule: {name: "gpipe", ...kEightBatches}},
    controls: [{kind: "schedule", names: ["gpipe", "1f1b"]}],
    hint: "1F1B means one forward, one backward.",
    solution: {schedule: {name: "1f1b", ...kEightBatches}},
  },
  {
    title: "More micro-batches",
    text: "The pipeline fills and drains once a step. The chart gives every micro-batch the same time, so with " +
        "more of them the step is longer, and the same bubble is a smaller part of it. But the samples of a step " +
        "are given: more micro-batches are smaller ones, which use a GPU badly. Raise N, the number of " +
        "micro-batches, until the bubble is at most 20 %, but no further than needed.",
    goal: "bubble<=20,micro-batches<=12,in-flight<=4",
    start: {schedule: {name: "1f1b", ...kFourWorkers}},
    controls: [{kind: "micro-batches", to: 24}],
    hint: "The bubble is 3 / (N + 3) of the step.",
    solution: {schedule: {name: "1f1b", stages: 4, micro_batches: 12}},
  },
  {
    title: "Chunks",
    text: "Give each worker two small parts of the model instead of one large part: stages 0 and 4 on worker " +
        "0, and so on. The first micro-batch reaches the last worker in half the time, so the idle " +
        "time halves. The price: each micro-batch passes every worker twice, with more than twice the messages. " +
        "Set v, the number of these chunks on a worker, to 2.",
    goal: "bubble<=16",
    start: {schedule: {name: "interleaved-1f1b", ...kEightBatches, parameters: {chunks: 1}}},
    controls: [{kind: "parameters"}],
    hint: "Type 2 as v.",
    solution: {schedule: {name: "interleaved-1f1b", ...kEightBatches, parameters: {chunks: 2}}},
  },
  {
    title: "Two directions",
    text: "Chimera keeps two copies of the model. One pipeline runs down the workers, the other runs up, " +
        "each with half of the micro-batches. Each fills bubbles of the other. The price: every worker " +
        "holds two stages, so the weights take twice the room, and the copies' gradients must be added at " +
        "the end of a step. In the list Schedule, choose chimera.",
    goal: "bubble<=25,micro-batches<=4,in-flight<=4",
    start: {schedule: {name: "1f1b", ...kFourWorkers}},
    controls: [{kind: "schedule", names: ["gpipe", "1f1b", "chimera"]}],
    hint: "Hatched ops belong to the second copy.",
    solution: {schedule: {name: "chimera", ...kFourWorkers}},
  },
  {
    title: "A backward in two parts",
    text: "A backward computes two things: the gradient of the input (I), which the worker before waits for, " +
        "and the gradient of the weights (W), which nobody waits for. Split them, send I early, and fill " +
        "bubbles with W. Choose a schedule that does, without more than four micro-batches in flight.",
    goal: "bubble<=12,in-flight<=4",
    start: {schedule: {name: "1f1b", ...kEightBatches}},
    controls: [{kind: "schedule", names: ["1f1b", "zb-h1", "zb-h2"]}],
    hint: "H1 keeps the memory of 1F1B; H2 uses more.",
    solution: {schedule: {name: "zb-h1", ...kEightBatches}},
  },
  {
    title: "Two directions and two parts",
    text: "Both ideas together: two pipelines in opposite directions, and backwards in two parts. Four " +
        "workers with only four micro-batches are then busy for more than nine tenths of a step. Compare " +
        "the three schedules: how long is the step, and how many copies of the weights does a worker hold?",
    goal: "bubble<=8,micro-batches<=4,in-flight<=4",
    start: {schedule: {name: "chimera", ...kFourWorkers}},
    controls: [{kind: "schedule", names: ["chimera", "zb-h1", "chimera-zb"]}],
    hint: "zb is short for zero bubble.",
    solution: {schedule: {name: "chimera-zb", ...kFourWorkers}},
  },
  {
    title: "Slices",
    text: "A micro-batch of one long text can be cut along its tokens. A slice's forward needs the slices " +
        "before it, its backward the slices after it. Slices are small, so the pipeline fills faster, and " +
        "a worker keeps fewer activations. Use as few slices as the goal allows: small ops use a GPU badly.",
    goal: "bubble<=20,in-flight<=2",
    start: {schedule: {name: "1f1b", ...kFourWorkers}},
    controls: [{kind: "parameters"}],
    hint: "Move the slider of k.",
    solution: {schedule: {name: "1f1b", ...kFourWorkers, parameters: {slices: 4}}},
  },
  {
    title: "A slow link",
    text: "Messages take time. Here the link between workers 1 and 2 is slow: a message takes as long as a " +
        "forward. Each micro-batch crosses it twice, and 1F1B waits for it every time. If the workers " +
        "before the link start one more forward early, they have something to do while a message is under " +
        "way.",
    goal: "makespan<=35,in-flight<=5",
    start: {schedule: {name: "1f1b", ...kEightBatches}, warmUp: [0, 0, 0, 0],
            costs: {file: JSON.stringify({latency: 0, stages: kEqualStages, links: {
              alphas: [[0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]}})}},
    controls: [{kind: "warm-up", workers: [0, 1], most: 3}],
    hint: "Both workers before the link need one more.",
    solution: {warmUp: [1, 1, 0, 0]},
  },
  {
    title: "A deadlock",
    text: "Worker 0 wants the gradient of micro-batch 0 before it starts micro-batch 1. Worker 1 wants " +
        "micro-batch 1 before it returns that gradient. Each waits for the other: a deadlock. The arrows " +
        `show the cycle. A real run would hang; the checker finds it before. Repair the order. ${kEdit}`,
    goal: "makespan<=9",
    start: {text: "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"},
    hint: "Worker 0 can start 0F1 before 0B0.",
    solution: {text: "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"},
  },
  {
    title: "A lost worker",
    text: "Worker 1 has failed. Chimera has two copies of each stage, so its stages also exist on worker 2, " +
        "which now does the work of both. The run goes on, slower. No order can be faster than worker 2 " +
        "allows. Give worker 2 its input earlier: let it fill its waits with forwards of the other " +
        "micro-batches.",
    goal: "makespan<=28",
    start: {text: '# {"format": "chimera-schedule", "version": 1, "name": "without worker 1", "stages": 4, ' +
                  '"micro_batches": 4, "replicas": [{"id": 0, "workers": [0, 2, 2, 3]}, ' +
                  '{"id": 1, "workers": [3, 2, 2, 0]}]}\n' +
                  "0F0,0F1,3F2r1,3B2r1,0B0,3F3r1,3B3r1,0B1\n\n" +
                  "1F0,2F0,1F2r1,2F2r1,2B0,2B2r1,1B0,1B2r1,1F1,2F1,1F3r1,2F3r1,2B1,2B3r1,1B1,1B3r1\n" +
                  "0F2r1,0F3r1,3F0,3B0,0B2r1,3F1,3B1,0B3r1\n"},
    hint: "Move 1F3r1 of worker 2 before 2B0, and 2F3r1 before 1B2r1.",
    solution: {text: '# {"format": "chimera-schedule", "version": 1, "name": "without worker 1", "stages": 4, ' +
                  '"micro_batches": 4, "replicas": [{"id": 0, "workers": [0, 2, 2, 3]}, ' +
                  '{"id": 1, "workers": [3, 2, 2, 0]}]}\n' +
                  "0F0,0F1,3F2r1,3B2r1,0B0,3F3r1,3B3r1,0B1\n\n" +
                  "1F0,2F0,1F2r1,2F2r1,1F3r1,2B0,2B2r1,1B0,2F3r1,1B2r1,1F1,2F1,2B3r1,1B3r1,2B1,1B1\n" +
                  "0F2r1,0F3r1,3F0,3B0,0B2r1,3F1,3B1,0B3r1\n"},
  },
  {
    title: "A slow worker",
    text: "Worker 2 takes one and a half times as long as the others. In every round the three others wait " +
        "for it. Give it fewer layers: the model has 12, and a stage can have any number. The layers that " +
        "it loses must go to others without making one of them the slowest.",
    goal: "makespan<=38",
    start: {schedule: {name: "1f1b", ...kEightBatches}, layers: [3, 3, 3, 3]},
    controls: [{kind: "layers", usual: 3, slow: [1, 1, 1.5, 1],
                options: [[3, 3, 3, 3], [3, 3, 2, 4], [4, 3, 2, 3], [3, 4, 2, 3], [4, 3, 1, 4]]}],
    hint: "Where a pipeline begins, a longer stage costs the least.",
    solution: {layers: [4, 3, 2, 3]},
  },
  {
    title: "A slow worker and a second copy",
    text: "Now worker 2 takes twice as long, and the layers must stay where they are. At full speed 1F1B would take " +
        "33, Chimera 30. In 1F1B no other worker holds stage 2, so all wait. In Chimera, worker 1 holds copies of " +
        "both stages of worker 2 and can run some of their ops. Choose the schedule, and whether those ops are " +
        "shared. One choice alone is not enough.",
    goal: "makespan<=36",
    start: {schedule: {name: "1f1b", ...kEightBatches},
            costs: {file: JSON.stringify({latency: 0, stages: kEqualStages, workers: [1, 1, 2, 1]})}},
    controls: [{kind: "schedule", names: ["1f1b", "chimera"]}, {kind: "slow", workers: "2:2"}],
    hint: "Sharing needs a second copy.",
    solution: {schedule: {name: "chimera", ...kEightBatches}, shared: true},
  },
  {
    title: "You against the search",
    text: "The last stage has the head of the model, so it takes 1.5 times as long, and messages take time. " +
        "Improve the order with at most four micro-batches in flight. Then let the search try: it also " +
        "computes a bound that no order can beat. If its result equals the bound, it is the best of all " +
        "orders.",
    goal: "makespan<=30.4,in-flight<=4",
    start: {text: "0F0,0F1,0F2,0F3,0I0,0W0,0F4,0I1,0W1,0F5,0I2,0W2,0I3,0W3,0I4,0W4,0I5,0W5\n" +
                  "1F0,1F1,1F2,1I0,1W0,1F3,1I1,1W1,1F4,1I2,1W2,1F5,1I3,1W3,1I4,1W4,1I5,1W5\n" +
                  "2F0,2F1,2I0,2W0,2F2,2I1,2W1,2F3,2I2,2W2,2F4,2I3,2W3,2F5,2I4,2W4,2I5,2W5\n" +
                  "3F0,3I0,3W0,3F1,3I1,3W1,3F2,3I2,3W2,3F3,3I3,3W3,3F4,3I4,3W4,3F5,3I5,3W5\n",
            costs: {latency: 0.1, stage_factors: "1, 1, 1, 1.5"}},
    controls: [{kind: "search"}],
    hint: "Press Search for a faster order, then Apply.",
    solution: null,
  },
];
