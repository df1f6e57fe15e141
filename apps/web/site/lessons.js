"use strict";
// The page of lessons. The address after the # has the lesson (lesson=3) or a goal of a teacher's own (goal=bubble<=20
// and a schedule), and the reader's order (state=...).

const kMeasures = {
  "bubble": {text: "bubble (idle share of the workers' time)", unit: " %", of: ({totals}) => 100 * totals.bubble_ratio},
  "makespan": {text: "makespan (time of the step)", unit: "", of: ({totals}) => totals.makespan},
  "in-flight": {text: "micro-batches in flight on a worker", unit: "", of: ({totals}) => totals.peak_units},
  "micro-batches": {text: "micro-batches", unit: "", of: ({microBatches}) => microBatches},
  "copies": {text: "copies of the weights", unit: "", of: ({panel}) => panel.totals.weightCopies},
  "messages": {text: "messages", unit: "", of: ({totals}) => totals.messages},
};

/** Returns [{name, limit}] of a text such as `bubble<=20,in-flight<=4`; throws for anything else. */
function readGoal(text) {
  return text.split(",").filter((part) => part !== "").map((part) => {
    const [, name, limit] = /^([a-z-]+)<=?([0-9.]+)$/.exec(part.trim()) ?? [];
    if (!kMeasures[name] || !Number.isFinite(Number(limit))) {
      throw new Error(`goal ${part}: write one of ${Object.keys(kMeasures).join(", ")}, then <= and a number`);
    }
    return {name, limit: Number(limit)};
  });
}

/** Returns the fields of the address: name=value, joined by &. */
function addressFields() {
  const fields = {};
  for (const part of location.hash.slice(1).split("&")) {
    const at = part.indexOf("=");
    // A goal has = itself, so that only the first one separates.
    if (part !== "") fields[at < 0 ? part : part.slice(0, at)] = at < 0 ? "" : decodeURIComponent(part.slice(at + 1));
  }
  return fields;
}

/** Returns a lesson made of the address's goal and schedule. */
function ownLesson(fields) {
  readGoal(fields.goal);
  const names = catalog.schedules.filter((each) => each.synchronous).map((each) => each.name);
  const schedule = {name: fields.schedule ?? "gpipe", stages: Number(fields.stages ?? 4),
                    micro_batches: Number(fields["micro-batches"] ?? 8), parameters: {}};
  for (const {name, values} of catalog.axes) {
    if (name in fields) schedule.parameters[name] = values.length > 0 ? fields[name] : Number(fields[name]);
  }
  const costs = {};
  for (const name of ["forward", "input_gradient", "weight_gradient", "latency"]) {
    const given = fields[name.replaceAll("_", "-")];
    if (given !== undefined) costs[name] = Number(given);
  }
  if (fields["stage-factors"]) costs.stage_factors = fields["stage-factors"];
  const fixed = (fields.fixed ?? "").split(",");
  const control = (name, more) => fixed.includes(name) ? [] : [{kind: name, ...more}];
  return {title: fields.title ?? "A goal of your own", text: fields.text ?? "Reach the goal.", goal: fields.goal,
          start: {schedule, costs}, hint: fields.hint ?? null, solution: null,
          controls: [...control("schedule", {names: fields.choices ? fields.choices.split(",") : names}),
                     ...control("stages", {to: 16}), ...control("micro-batches", {to: 32}), ...control("parameters"),
                     ...control("search")]};
}

/** Returns 1F1B whose worker w starts `extra[w]` more forwards before its first backward. */
function warmUpText(stages, microBatches, extra) {
  const rows = [];
  for (let w = 0; w < stages; ++w) {
    const before = Math.min(microBatches, stages - w + extra[w]);
    const cells = Array.from({length: before}, (_, m) => `${w}F${m}`);
    for (let m = 0; m < microBatches; ++m) {
      cells.push(`${w}B${m}`);
      if (before + m < microBatches) cells.push(`${w}F${before + m}`);
    }
    rows.push(cells.join(","));
  }
  return `${rows.join("\n")}\n`;
}

const kKept = "all stay on it";
const kShared = "shared with workers that hold a copy of its stages";

const kDone = "chimera-lessons";
function readDone() {
  try {
    return new Set(JSON.parse(localStorage.getItem(kDone) ?? "[]"));
  } catch {
    return new Set();  // the browser keeps nothing for this page
  }
}

function markDone(title) {
  const done = readDone().add(title);
  try {
    localStorage.setItem(kDone, JSON.stringify([...done]));
  } catch {
    // Progress is then lost when the page closes.
  }
}

const kReasons = {  // by cause; the op that the worker waits for, such as `2F5 on worker 2`
  "warm-up": () => "nothing has reached it yet, because a pipeline fills from one end",
  "dependency": (op) => `its next op needs the result of ${op}, which is not done yet`,
  "latency": (op) => `${op} is done, but the message with its result is still under way`,
  "sync": () => "it waits for the sum of gradients",
  "imbalance": () => "its own ops are done, and others still work",
};

/** Says why the longest bubble of a panel exists. */
function largestBubble(panel) {
  const {start, end, cause, waitsFor, first} = panel.bubbles;
  let best = -1;
  for (let b = 0; b < start.length; ++b) {
    if (best < 0 || end[b] - start[b] > (end[best] - start[best]) * (1 + 1e-6)) best = b;
  }
  if (best < 0) return "No worker waits at all.";
  const worker = firstAbove(first, best, 0, first.length) - 1;
  const awaited = waitsFor[best] === kNone ? "another op" : panel.place(waitsFor[best]);
  return `The largest bubble is on worker ${worker}, from ${number(start[best])} to ${number(end[best])}: ` +
      `${kReasons[page.causes[cause[best]].name](awaited)}.`;
}

class LessonPage {
  constructor(place) {
    this.place = place;
    this.latest = new Latest(() => this.examine());
    this.past = new History();
  }

  /** Shows the lesson of the address. */
  open() {
    const fields = addressFields();
    document.body.classList.toggle("embed", "embed" in fields);
    const own = "goal" in fields;
    this.index = own ? -1 : Math.min(Math.max(Math.floor(Number(fields.lesson ?? 1)) || 1, 1), kLessons.length) - 1;
    this.fields = fields;
    try {
      this.lesson = own ? ownLesson(fields) : kLessons[this.index];
    } catch (error) {
      this.place.replaceChildren(make("p", {class: "error", role: "alert"}, error.message));
      return;
    }
    this.begin();
    if (fields.state) {
      try {
        Object.assign(this.work, JSON.parse(decodeText(fields.state)));
      } catch {
        // The address was cut; start at the beginning
      }
    }
    this.goals = readGoal(this.lesson.goal);
    this.reached = false;
    this.finder = null;
    this.past = new History();
    this.build();
    this.latest.request();
  }

  begin() {
    const {start} = this.lesson;
    this.work = {schedule: null, text: "", warmUp: null, layers: null, shared: false, ...structuredClone(start)};
    delete this.work.costs;
  }

  costs() {
    const {start, controls} = this.lesson;
    const costs = {...kUsualCosts, ...start.costs};
    const layers = controls?.find((each) => each.kind === "layers");
    if (layers && this.work.layers) {
      costs.stage_factors = this.work.layers.map((count, s) => count / layers.usual * layers.slow[s]).join(", ");
    }
    return costFields(costs);
  }

  save() {
    const {lesson: _, goal, state: __, ...rest} = this.fields;
    const state = encodeText(JSON.stringify(this.work));
    const kept = goal === undefined ? [] : Object.entries({goal, ...rest});
    if (goal === undefined && "embed" in rest) kept.push(["embed", ""]);
    const parts = [...goal === undefined ? [`lesson=${this.index + 1}`] : [],
                   ...kept.map(([name, value]) => value === "" ? name : `${name}=${encodeURIComponent(value)}`)];
    history.replaceState(null, "", `#${[...parts, `state=${state}`].join("&")}`);
  }

  change(part) {
    Object.assign(this.work, part);
    this.save();
    this.latest.request();
  }

  /** Changes the form, which replaces an order that the reader has edited. */
  choose(part) {
    this.work.text = "";
    this.order?.pick(null);
    this.finder?.forget();
    this.change(part);
  }

  edit(text) {
    this.past.push(this.text);
    this.change({text});
  }

  build() {
    const {title, text, hint, solution} = this.lesson;
    const count = this.index < 0 ? "" : `Lesson ${this.index + 1} of ${kLessons.length}`;
    const root = plotParts("the schedule; arrow keys select an op, Shift and an arrow moves it");
    this.legend = make("div", {class: "legend", "aria-label": "legend"});
    this.spoken = make("p", {class: "said", role: "status"});
    this.bar = make("div", {class: "bar"});
    this.verdict = make("div", {class: "verdict", role: "status"});
    this.goalList = make("ul", {class: "goals"});
    this.numbers = make("p", {class: "said"});
    this.reason = make("p", {class: "reason"});
    this.form = make("div", {class: "row narrow"});
    this.order = new OrderPlot({root, legend: this.legend, bar: this.bar, spoken: this.spoken, text: () => this.text,
                                edit: (changed) => this.edit(changed), more: () => this.finder?.panels() ?? []});
    root.addEventListener("keydown", (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
      event.preventDefault();
      this.change({text: event.shiftKey ? this.past.redo(this.text) : this.past.undo(this.text)});
    });
    const said = make("p", {class: "hint", role: "status", hidden: true});
    const buttons = [
      button("Start again", () => {
        this.begin();
        this.showWork();
      }),
      hint ? button("Hint", () => say(said, hint)) : null,
      solution ? button("Show the solution", () => {
        this.begin();
        Object.assign(this.work, {text: "", warmUp: null, layers: null, ...structuredClone(solution)});
        this.showWork();
      }) : null,
      button("Undo", () => {
        this.order.pick(null);
        this.change({text: this.past.undo(this.text)});
      }),
      copyButton("Copy link", () => location.href),
    ];
    this.fillForm();
    const step = (by, words) => {
      const to = this.index + by;
      return this.index < 0 || to < 0 || to >= kLessons.length ? null
          : make("a", {class: "button", href: `#lesson=${to + 1}`}, words);
    };
    this.place.replaceChildren(
        make("p", {class: "count"}, count), make("h1", {id: "title"}, title), make("p", {class: "text"}, text),
        make("div", {class: "goal"}, make("b", {}, "Goal"), this.goalList, this.verdict),
        this.form, this.legend, this.bar, root, this.spoken, this.numbers, this.reason, said, row(...buttons),
        make("p", {class: "steps"}, step(-1, "← Lesson before"), step(1, "Next lesson →")));
    this.fillList();
  }

  /** Shows the changed work: the form, the address and the picture. */
  showWork() {
    this.past = new History();
    this.order.pick(null);
    this.finder?.forget();
    this.fillForm();
    this.change({});
  }

  fillForm() {
    const {work} = this;
    const refill = (part) => {
      this.choose(part);
      this.fillForm();
    };
    const shape = (name) => (value) => this.choose({schedule: {...work.schedule, [name]: value}});
    const parts = {
      "schedule": ({names}) => select("Schedule", names, work.schedule.name, (name) => refill(
          {schedule: {...work.schedule, name, parameters: {}}})),
      "stages": ({to}) => slider("D, workers", work.schedule.stages, {from: 1, to, step: 1, whole: true},
                                 shape("stages")),
      "micro-batches": ({to}) => slider("N, micro-batches", work.schedule.micro_batches,
                                        {from: 1, to, step: 1, whole: true}, shape("micro_batches")),
      "parameters": () => parameterFields(work.schedule, () => this.choose({})),
      "warm-up": ({workers, most}) => workers.map((w) => slider(
          `Extra forwards of worker ${w}`, work.warmUp[w], {from: 0, to: most, step: 1, whole: true}, (value) => {
            work.warmUp[w] = value;
            this.choose({});
          })),
      "layers": ({options}) => select("Layers of stages 0 to 3", options.map((each) => each.join(" ")),
                                      work.layers.join(" "), (text) => this.choose(
                                          {layers: text.split(" ").map(Number)})),
      "slow": () => select("Ops of the slow worker", [kKept, kShared], work.shared ? kShared : kKept,
                           (text) => this.choose({shared: text === kShared})),
      "search": () => this.search(),
    };
    const controls = this.lesson.controls ?? [];
    const hadFocus = this.form.contains(document.activeElement);
    this.form.replaceChildren(...controls.flatMap((each) => parts[each.kind](each)));
    this.form.hidden = controls.length === 0;
    if (hadFocus) this.form.querySelector("select")?.focus();  // For the next arrow key
  }

  search() {
    const limit = readGoal(this.lesson.goal).find((each) => each.name === "in-flight")?.limit;
    this.finder ??= new Finder({
      request: () => ({schedule: {text: this.text}, ...this.costs(), ...limit ? {max_in_flight: limit} : {}}),
      show: () => this.order.showPanels(),
      take: (text) => this.edit(text),
    });
    return this.finder.controls;
  }

  fillList() {
    const done = readDone();
    document.getElementById("lessons").replaceChildren(...kLessons.map(({title}, i) => make(
        "li", {}, make("a", {href: `#lesson=${i + 1}`, "aria-current": i === this.index ? "page" : null}, title),
        done.has(title) ? make("span", {class: "done"}, " ✓ done") : null)));
  }

  /** Returns the text of the order: the reader's own, or that of the form. */
  async currentText() {
    const {work} = this;
    if (work.text !== "") return work.text;
    if (work.warmUp) return warmUpText(work.schedule.stages, work.schedule.micro_batches, work.warmUp);
    const schedule = scheduleField(work.schedule, work.schedule.stages, work.schedule.micro_batches);
    const slow = work.shared ? this.lesson.controls.find((each) => each.kind === "slow").workers : "";
    return (await quickEngine.ask({do: "export", format: "csv", schedule, ...slowFields(slow)})).text;
  }

  async examine() {
    const began = performance.now();
    try {
      this.text = await this.currentText();
      const request = {schedule: {text: this.text}, ...this.costs()};
      const checked = await quickEngine.ask({do: "check", ...request});
      const timed = checked.report.valid ? await quickEngine.ask({do: "simulate", ...request}) : null;
      this.show(checked, timed);
    } catch (error) {
      this.goalList.replaceChildren();
      this.verdict.className = "verdict bad";
      this.verdict.replaceChildren(make("b", {}, "Not possible"), make("p", {}, error.message));
    }
    this.verdict.dataset.milliseconds = (performance.now() - began).toFixed(1);
  }

  show(checked, timed) {
    const {valid} = checked.report;
    const answer = timed ?? checked;
    if (answer.panel) {
      const panel = new Panel(answer.panel);
      panel.title = valid ? panel.title.replace(/^(csv|search)\b/, "your order") : "your order: ops that run";
      this.order.show(panel, checked.report.violations[0]?.places ?? [], checked.visited ?? null);
      this.reason.textContent = valid ? largestBubble(panel) : "";
    }
    const values = timed && {totals: timed.totals, panel: timed.panel, microBatches: checked.micro_batches};
    const met = this.goals.map(({name, limit}) => values !== null && kMeasures[name].of(values) <= limit + 1e-6);
    this.goalList.replaceChildren(...this.goals.map(({name, limit}, i) => {
      const {text, unit, of} = kMeasures[name];
      const now = values === null ? "" : ` (now ${Number(of(values).toFixed(2))}${unit})`;
      return make("li", {class: met[i] ? "met" : null},
                  `${met[i] ? "✓" : "○"} ${text} at most ${limit}${unit}${now}`);
    }));
    const reached = valid && met.every((each) => each);
    this.verdict.className = `verdict ${valid ? reached ? "good" : "open" : "bad"}`;
    if (!valid) this.verdict.replaceChildren(...verdictParts(checked));
    else if (reached) this.verdict.replaceChildren(make("b", {}, "Goal reached."));
    else this.verdict.replaceChildren("Not yet.");
    if (timed) {
      const {makespan, lower_bound: bound, bubble_ratio: bubble, messages, peak_units: units} = timed.totals;
      this.numbers.textContent = `Makespan ${number(makespan)}, no order of these ops is faster than ` +
          `${number(bound)}${makespan > bound * (1 + 1e-6) ? " (the dashed line)" : ""}; bubble ` +
          `${(100 * bubble).toFixed(1)} %; at most ${number(units)} micro-batches in flight on a worker; ` +
          `copies of the weights: ${number(timed.panel.totals.weightCopies)}; messages: ${messages}.`;
    } else {
      this.numbers.textContent = "";
    }
    if (reached && !this.reached && this.index >= 0) {
      markDone(this.lesson.title);
      this.fillList();
    }
    this.reached = reached;
  }
}

/** Lets a teacher write a goal; the result is a link, and a frame for another page. */
function teachersBox(lessons) {
  const chosen = {bubble: 20, "in-flight": 4, makespan: 0, title: "", text: ""};
  const link = make("input", {type: "text", readonly: true});
  const fill = () => {
    const goal = ["bubble", "in-flight", "makespan"].filter((name) => chosen[name] > 0).map(
        (name) => `${name}<=${chosen[name]}`).join(",");
    const {schedule} = lessons.work ?? {};
    const fields = {goal, schedule: schedule?.name ?? "gpipe", stages: schedule?.stages ?? 4,
                    "micro-batches": schedule?.micro_batches ?? 8, ...schedule?.parameters};
    for (const name of ["title", "text"]) if (chosen[name] !== "") fields[name] = chosen[name];
    const words = Object.entries(fields).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    link.value = `${location.href.split("#")[0]}#${words.join("&")}`;
  };
  const take = (name) => (value) => {
    chosen[name] = value;
    fill();
  };
  const frame = () => `<iframe src="${link.value.replaceAll("&", "&amp;")}&amp;embed" width="100%" height="760" ` +
      'title="Chimera lesson"></iframe>';
  const box = make("details", {class: "teachers"}, make("summary", {}, "For teachers: a goal of your own"),
      make("p", {}, "The link opens a page with this goal and the schedule shown above. 0: no such goal."),
      row(numberField("Bubble, %", 20, {}, take("bubble")), numberField("Micro-batches in flight", 4, {},
                                                                         take("in-flight")),
          numberField("Makespan", 0, {}, take("makespan"))),
      textField("Title", "", "A goal of your own", take("title")),
      textField("Text", "", "Reach the goal.", take("text")), labeled("Link", link),
      row(copyButton("Copy the link", () => link.value), copyButton("Copy a frame for a page", frame)));
  box.addEventListener("toggle", fill);
  return box;
}

async function startLessons() {
  const waiting = document.getElementById("waiting");
  try {
    catalog = await quickEngine.ask({do: "catalog"});
    page = catalog.page;
  } catch (error) {
    return say(waiting, `The lessons cannot start: ${error.message}`, true);
  }
  waiting.hidden = true;
  const lessons = new LessonPage(document.getElementById("lesson"));
  lessons.open();
  document.getElementById("teachers").append(teachersBox(lessons));
  window.addEventListener("hashchange", () => {
    lessons.open();
    window.scrollTo(0, 0);
    document.getElementById("title")?.setAttribute("tabindex", "-1");
    document.getElementById("title")?.focus();
  });
}

startLessons();
