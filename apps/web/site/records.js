"use strict";
// The page of records: judges a schedule that is pasted, dropped or loaded against a record.

const kRecords = JSON.parse(document.getElementById("records").textContent);  // shape and placement of each
const known = new Map();  // records by name

async function recordOf(name) {
  if (!known.has(name)) {
    const answer = await fetch(`${name}.json`);
    if (!answer.ok) throw new Error(`${name}.json: ${answer.status} ${answer.statusText}`);
    known.set(name, await answer.json());
  }
  return known.get(name);
}

/** Returns the facts that make two schedules answers to the same problem. */
function shapeOf(schedule) {
  const counts = schedule.replicas.map(() => new Set());
  let splits = false;
  for (const op of schedule.workers.flat()) {
    counts[op.replica]?.add(op.micro_batch);
    splits ||= op.op === "I" || op.op === "W";
  }
  return {workers: schedule.workers.length, micro_batches: schedule.micro_batches, slices: schedule.slices ?? 1,
          placement: JSON.stringify(schedule.replicas.map((each) => each.workers)),
          counts: JSON.stringify(counts.map((each) => each.size)), splits};
}

/** Returns why a schedule is no answer to a record's problem, or null. */
function difference(mine, record) {
  for (const [name, words] of [["workers", "workers"], ["micro_batches", "micro-batches"], ["slices", "slices"]]) {
    if (mine[name] !== record[name]) return `it has ${mine[name]} ${words}, the record's problem has ${record[name]}`;
  }
  if (mine.placement !== record.placement) return "its stages are on other workers than in the record's problem";
  if (mine.counts !== record.counts) return "its replicas have other numbers of micro-batches";
  if (mine.splits && !record.splits) return "it splits backwards, and the record's problem has whole ones";
  return null;
}

function percent(share) {
  return `${Number((100 * share).toPrecision(3))} %`;
}

/** Returns the words on a valid schedule's makespan against record and bound. */
function comparison(makespan, record) {
  const tiny = 1e-9 * record.makespan;
  const bound = `The lower bound is ${number(record.lower_bound)}.`;
  const solved = record.makespan <= record.lower_bound + tiny;
  if (makespan < record.makespan - tiny) {
    return ["Beats the record", `Makespan ${number(makespan)} is ${percent(1 - makespan / record.makespan)} shorter ` +
        `than the record's ${number(record.makespan)}. ${bound} Save it as a record and send it to the project.`];
  }
  if (makespan <= record.makespan + tiny) {
    return ["Equals the record", `Makespan ${number(makespan)}. ${solved
        ? "It equals the lower bound, so nobody can do better."
        : `${bound} An order up to ${percent(1 - record.lower_bound / record.makespan)} shorter may exist.`}`];
  }
  return ["Valid, but longer than the record", `Makespan ${number(makespan)} is ` +
      `${percent(makespan / record.makespan - 1)} longer than the record's ${number(record.makespan)}. ${bound}`];
}

function startRecords() {
  const place = document.getElementById("judge");
  const chosen = {name: kRecords[0].name};
  const verdict = make("div", {class: "verdict", role: "status", hidden: true});
  const text = make("textarea", {class: "source", rows: 6, spellcheck: "false", wrap: "off"});
  const pick = make("div");
  const fillPick = () => pick.replaceChildren(select("Record", kRecords.map((each) => each.name), chosen.name,
                                                     choose));
  const latest = new Latest(judge);

  function choose(name) {
    chosen.name = name;
    fillPick();
    if (text.value.trim() !== "") latest.request();
  }

  function tell(kind, title, ...parts) {
    verdict.hidden = false;
    verdict.className = `verdict ${kind}`;
    verdict.replaceChildren(make("b", {}, title), ...parts);
  }

  /** Returns the text of the schedule, also if a whole record or a search's result was given. */
  function scheduleText(given) {
    try {
      const json = JSON.parse(given);
      return json.schedule ? JSON.stringify(json.schedule) : given;
    } catch {
      return given;
    }
  }

  async function judge() {
    const given = scheduleText(text.value);
    try {
      tell("", "Checking…");
      catalog ??= await quickEngine.ask({do: "catalog"});
      const record = await recordOf(chosen.name);
      const schedule = {text: given};
      const mine = shapeOf(JSON.parse((await quickEngine.ask({do: "read", schedule})).text));
      const other = difference(mine, kRecords.find((each) => each.name === chosen.name));
      if (other !== null) {
        const fitting = kRecords.filter((each) => difference(mine, each) === null).map((each) => button(
            each.name, () => choose(each.name)));
        return tell("bad", "For another problem", make("p", {}, `The schedule does not fit ${chosen.name}: ${other}.`),
                    fitting.length > 0 ? row(make("span", {}, "It fits:"), ...fitting)
                        : make("p", {}, "It fits no record."));
      }
      const limit = record.max_in_flight === undefined ? {} : {max_in_flight: record.max_in_flight};
      const costs = {costs: {file: JSON.stringify(record.costs)}};
      const checked = await quickEngine.ask({do: "check", schedule, ...costs, ...limit});
      if (!checked.report.valid) return tell("bad", "", ...verdictParts(checked));
      const {totals} = await quickEngine.ask({do: "simulate", view: "totals", schedule, ...costs});
      const [title, words] = comparison(totals.makespan, record);
      const beats = title === "Beats the record";
      tell("good", title, make("p", {}, words),
           beats ? button("Save as a record", () => save(record, totals.makespan, schedule)) : "");
    } catch (error) {
      tell("bad", "Not a schedule", make("p", {}, error.message));
    }
  }

  async function save(record, makespan, schedule) {
    const {text: json} = await quickEngine.ask({do: "read", schedule});
    const found = {...record, makespan, by: "by hand", date: new Date().toISOString().slice(0, 10),
                   schedule: JSON.parse(json)};
    download(`${record.name}.json`, JSON.stringify(found, null, 1), "application/json");
  }

  const load = make("input", {type: "file", accept: ".json,.csv,.txt", class: "hidden", "aria-label": "Load a file"});
  const take = (given) => {
    text.value = given;
    latest.request();
  };
  load.addEventListener("change", async () => {
    if (load.files.length > 0) take(await load.files[0].text());
    load.value = "";
  });
  text.addEventListener("input", () => latest.request());
  place.addEventListener("dragover", (event) => event.preventDefault());
  place.addEventListener("drop", async (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    take(file ? await file.text() : event.dataTransfer.getData("text/plain"));
  });
  fillPick();
  place.append(pick, labeled("Schedule, as JSON or CSV: paste it, or drop a file here", text),
               row(button("Judge", () => latest.request(), {class: "main"}), button("Load a file", () => load.click()),
                   load, button("Use the record itself", async () => take(
                       JSON.stringify((await recordOf(chosen.name)).schedule)))),
               verdict);
  for (const each of document.querySelectorAll("[data-record]")) {
    each.addEventListener("click", () => {
      choose(each.dataset.record);
      place.scrollIntoView();
      text.focus();
    });
  }
}

startRecords();
