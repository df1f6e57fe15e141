"use strict";
// The room Model and partition: FLOPs and memory of layers, stages and workers.

function flopsText(flops) {
  const units = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"];
  let unit = 0;
  for (; flops >= 1000 && unit + 1 < units.length; ++unit) flops /= 1000;
  return `${Number(flops.toPrecision(4))} ${units[unit]}`;
}

const kUsualWorkload = {sequence: 128, dtype: "float32", optimizer: "adamw", dropout: false};

/** Makes the fields for a preset model and changes of its sizes, for the rooms Model and Plan. */
function modelControls(chosen, changed) {
  const place = make("div");
  const fill = () => {
    const preset = catalog.models.find((each) => each.name === chosen.model) ?? catalog.models[0];
    const size = (text, name) => numberField(text, chosen.overrides[name] ?? preset[name], {least: 1, whole: true},
                                             (value) => {
                                               chosen.overrides[name] = value;
                                               if (value === preset[name]) delete chosen.overrides[name];
                                               changed();
                                             });
    const tied = checkbox("tied embedding and head", chosen.overrides.tied ?? preset.tied, (value) => {
      chosen.overrides.tied = value;
      changed();
    });
    place.replaceChildren(group(
        "Model",
        select("Preset", catalog.models.map((each) => each.name), preset.name, (name) => {
          chosen.model = name;
          chosen.overrides = {};
          fill();
          changed();
        }),
        row(size("Layers", "layers"), size("Hidden", "hidden"), size("Heads", "heads")),
        row(preset.family === "llama" ? size("Key/value heads", "key_value_heads") : null,
            size("Vocabulary", "vocabulary")),
        tied));
  };
  fill();
  return place;
}

/** Makes the fields for sequence length, type, optimizer and dropout. */
function workloadControls(chosen, changed) {
  const take = (name) => (value) => {
    chosen[name] = value;
    changed();
  };
  return group("Workload",
               row(numberField("Sequence", chosen.sequence, {least: 1, whole: true}, take("sequence"), "tokens"),
                   select("Type", catalog.dtypes, chosen.dtype, take("dtype")),
                   select("Optimizer", catalog.optimizers, chosen.optimizer, take("optimizer"))),
               checkbox("dropout", chosen.dropout, take("dropout")));
}

function modelRoom(room) {
  const chosen = chosenIn("model", {
    model: "gpt2", overrides: {}, ...kUsualWorkload, microBatchSize: 4, schedule: usualChoice("1f1b"), stages: 4,
    microBatches: 8, partition: "even", cut: "", recompute: "none", listed: "", memory: 16});
  const status = make("p", {class: "said", role: "status", hidden: true});
  const content = make("div", {class: "results"});
  const changed = () => {
    saveState();
    latest.request();
  };
  const latest = new Latest(count);
  const take = (name) => (value) => {
    chosen[name] = value;
    changed();
  };

  function requestWith(partition) {
    return {do: "model", model: chosen.model, overrides: chosen.overrides, micro_batch_size: chosen.microBatchSize,
            sequence: chosen.sequence, dtype: chosen.dtype, optimizer: chosen.optimizer, dropout: chosen.dropout,
            schedule: scheduleField(chosen.schedule, chosen.stages, chosen.microBatches), partition,
            recompute: chosen.recompute === "listed" ? chosen.listed || "none" : chosen.recompute,
            memory_bytes: chosen.memory * 2 ** 30};
  }

  async function count() {
    const wanted = chosen.partition === "by hand" ? chosen.cut || "even" : chosen.partition;
    const cuts = new Map([["even", "even"], ["balanced", "balanced"]]);
    if (chosen.partition === "by hand" && chosen.cut) cuts.set("by hand", chosen.cut);
    try {
      const asked = [...cuts.values()].map((cut) => quickEngine.ask(requestWith(cut)));
      const results = await Promise.allSettled(asked);
      const names = [...cuts.keys()];
      const index = [...cuts.values()].indexOf(wanted);
      if (results[index].reason) throw results[index].reason;
      show(results[index].value, names.map((name, i) => [name, results[i].value]).filter(([, value]) => value));
      say(status, "");
    } catch (error) {
      say(status, error.message, true);
    }
  }

  function show(answer, cuts) {
    const {model, workers} = answer;
    const limit = chosen.memory * 2 ** 30;
    const fits = workers.filter((worker) => worker.peak_bytes <= limit).length;
    content.replaceChildren(
        make("h2", {}, `${model.name}: ${model.parameters.toLocaleString("en")} parameters`),
        make("p", {class: fits === workers.length ? "fits" : "fits not"},
             fits === workers.length
                 ? `Fits: every worker stays below ${chosen.memory} GiB.`
                 : `${workers.length - fits} of ${workers.length} workers need more than ${chosen.memory} GiB.`,
             answer.recompute === "none" ? "" : ` Recomputed: ${answer.recompute}.`),
        stackedBars({
          title: "Peak memory of each worker", text: bytes, limit,
          bars: workers.map((worker, w) => ({
            label: `worker ${w}`, note: worker.peak_bytes > limit ? "over the limit" : "",
            parts: [{name: "weights, gradients, optimizer", amount: worker.state_bytes, color: catalog.op_colors[0]},
                    {name: "activations, messages, working set", amount: worker.peak_bytes - worker.state_bytes,
                     color: catalog.op_colors[1]}]}))}),
        stackedBars({
          title: "FLOPs of each worker in a step", text: flopsText,
          bars: workers.map((worker, w) => ({label: `worker ${w}`, parts: [
            {name: "FLOPs", amount: worker.flops, color: catalog.op_colors[3]}]}))}),
        cutsTable(cuts), stagesTable(answer), layersTable(answer),
        row(button("Open in Schedules", () => open(answer), {class: "main"}),
            copyButton("Copy partition", () => answer.partition),
            button("Save costs", () => download("costs.json", answer.costs.file, "application/json"))));
  }

  function cutsTable(cuts) {
    const rows = cuts.map(([name, {partition, workers}]) => {
      const flops = workers.map((worker) => worker.flops);
      const mean = flops.reduce((sum, each) => sum + each, 0) / flops.length;
      const slowest = Math.max(...flops);
      return [name, partition, flopsText(slowest), `+${(100 * (slowest / mean - 1)).toFixed(1)} %`,
              bytes(Math.max(...workers.map((worker) => worker.peak_bytes)))];
    });
    return table("Partitions",
                 ["partition", "blocks of each stage", "busiest worker", "above the mean", "peak memory"], rows);
  }

  function stagesTable({model}) {
    const rows = model.stages.map((stage, s) => {
      const last = stage.first_layer + stage.layers - 1;
      const blocks = stage.layers === 0 ? "no block" : `blocks ${stage.first_layer} to ${last}`;
      const parts = [stage.embedding ? "embedding" : "", blocks, stage.head ? "head" : ""];
      return [s, parts.filter((part) => part !== "").join(", "), stage.parameters.toLocaleString("en"),
              flopsText(stage.forward_flops), flopsText(stage.input_gradient_flops + stage.weight_gradient_flops),
              bytes(stage.weights_bytes), bytes(stage.gradients_bytes), bytes(stage.optimizer_bytes),
              bytes(stage.activations_bytes), bytes(stage.boundary_bytes)];
    });
    return table(`Stages, for a micro-batch of ${chosen.microBatchSize} sequences`,
                 ["stage", "layers", "parameters", "F", "I + W", "weights", "gradients", "optimizer", "activations",
                  "boundary"], rows);
  }

  function layersTable({model}) {
    const rows = Object.entries(model.layer_kinds).map(([kind, layer]) => [
      kind, layer.parameters.toLocaleString("en"), flopsText(layer.forward_flops),
      flopsText(layer.input_gradient_flops + layer.weight_gradient_flops), bytes(layer.activations_bytes)]);
    return table("One layer of each kind", ["layer", "parameters", "F", "I + W", "activations"], rows);
  }

  function open(answer) {
    rooms.schedules.open({choices: [{...chosen.schedule}], stages: chosen.stages, microBatches: chosen.microBatches,
                          costs: {file: answer.costs.file, source: `${chosen.model}; one unit of time is 10^9 FLOPs`}});
  }

  const cut = textField("Blocks of each stage", chosen.cut, "3, 3, 3, 3", (value) => {
    chosen.cut = value.split(/[\s,;]+/).filter((part) => part !== "").join(",");
    changed();
  });
  const listed = textField("Recomputed stages", chosen.listed, "0,1", take("listed"));
  const obey = () => {
    cut.hidden = chosen.partition !== "by hand";
    listed.hidden = chosen.recompute !== "listed";
  };
  obey();
  const shape = make("div");
  const fillShape = () => shape.replaceChildren(group(
      "Schedule",
      select("Schedule", catalog.schedules.map((each) => each.name), chosen.schedule.name, (name) => {
        chosen.schedule = usualChoice(name);
        fillShape();
        changed();
      }),
      ...parameterFields(chosen.schedule, changed),
      row(numberField("D", chosen.stages, {least: 1, most: 256, whole: true}, take("stages")),
          numberField("N", chosen.microBatches, {least: 1, most: 4096, whole: true}, take("microBatches")),
          numberField("Sequences per micro-batch", chosen.microBatchSize, {least: 1, whole: true},
                      take("microBatchSize")))));
  fillShape();
  const withObey = (name) => (value) => {
    chosen[name] = value;
    obey();
    changed();
  };
  layOut(room, [modelControls(chosen, changed), workloadControls(chosen, changed), shape,
                group("Partition and memory",
                      select("Partition", ["even", "balanced", "by hand"], chosen.partition, withObey("partition")),
                      cut,
                      select("Recompute", ["none", "full", "auto", "listed"], chosen.recompute, withObey("recompute"),
                             "auto: only as many stages as needed so that every worker fits"), listed,
                      numberField("Memory per worker, GiB", chosen.memory, {least: 0}, take("memory")))],
         [status, content]);
  latest.request();
  return {};
}
