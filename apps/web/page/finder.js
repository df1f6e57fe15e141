"use strict";
// The search for a faster order, in a worker of its own: in slices, each of which goes on from the best so far, so that
// what is found can be shown, and kept when the search is stopped.

const kSlices = 12;
const kLongestSlice = 8;  // seconds

class Finder {
  /** `request()`: schedule, costs and limits; `show()`: draws panels(); `take(text)`: makes a find the reader's own. */
  constructor({request, show, take}) {
    Object.assign(this, {request, show, take});
    this.found = null;  // {text, panel}
    this.searching = false;
    this.progress = make("p", {class: "said", role: "status", hidden: true});
    this.go = button("Search a faster order", () => this.search(), {class: "main"});
    this.halt = button("Stop", () => this.stop(), {disabled: true});
    this.choice = row(button("Take it", () => this.takeIt(), {class: "main"}), button("Drop it", () => this.drop()));
    this.choice.hidden = true;
    this.controls = [row(this.go, this.halt), this.progress, this.choice];
  }

  panels() {
    return this.found === null ? [] : [this.found.panel];
  }

  forget() {
    this.found = null;
    this.choice.hidden = true;
  }

  drop() {
    this.forget();
    this.show();
  }

  takeIt() {
    const {text} = this.found;
    this.forget();
    this.take(text);
  }

  stop() {
    this.searching = false;
    slowEngine().stop();
  }

  async search() {
    this.searching = true;
    this.go.disabled = true;
    this.halt.disabled = false;
    this.report = "";
    try {
      await this.runSlices(performance.now());
    } catch (error) {
      const stopped = error.message === "stopped";
      say(this.progress, stopped ? `Stopped. ${this.report}` : error.message, !stopped);
    }
    this.searching = false;
    this.go.disabled = false;
    this.halt.disabled = true;
  }

  async runSlices(began) {
    const {schedule, ...fields} = this.request();
    const origin = schedule.text;
    let best = origin;
    for (let slice = 0; this.searching && slice < kSlices; ++slice) {
      const answer = await slowEngine().ask(
          {do: "search", schedule: {text: best}, seed: slice, seconds: Math.min(1 + slice, kLongestSlice), ...fields},
          (now) => say(this.progress, this.progressText(began, now)));
      best = answer.schedule.text;
      await this.showFind(answer, origin);
      this.report = `${((performance.now() - began) / 1000).toFixed(0)} s: makespan ${number(answer.makespan)}, ` +
          `no order is faster than ${number(answer.lower_bound)}; found by ${answer.origin}`;
      say(this.progress, this.report);
      if (answer.gap <= 1e-9) return;
    }
  }

  progressText(began, {makespan, lower_bound: bound, origin}) {
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    const gap = bound > 0 ? `${(100 * (makespan / bound - 1)).toFixed(1)} %` : "an unknown part";
    return `${seconds} s: makespan ${number(makespan)} by ${origin}; at most ${gap} above what is possible`;
  }

  /** Shows the find, written as the reader's text is, unless that has changed meanwhile. */
  async showFind(answer, origin) {
    const {schedule, max_in_flight: _, ...costs} = this.request();
    if (origin !== schedule.text) return;
    const timed = await quickEngine.ask({do: "simulate", schedule: answer.schedule, ...costs});
    const text = isJson(origin) ? answer.schedule.text : (await quickEngine.ask(
        {do: "export", format: "csv", schedule: answer.schedule})).text;
    const panel = new Panel(timed.panel);
    panel.title = `found: makespan ${number(timed.totals.makespan)}`;
    this.found = {text, panel};
    this.choice.hidden = false;
    this.show();
  }
}
