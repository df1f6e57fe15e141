"use strict";
// Searches for a faster order in a separate worker. The search runs in slices that start from the best order so far, so
// that the best order can be shown meanwhile and kept when the search stops.

const kSlices = 12;
const kLongestSlice = 8;  // seconds

class Finder {
  /** `request()` returns schedule, costs and limits; `show()` draws panels(); `take(text)` replaces the user's text. */
  constructor({request, show, take}) {
    Object.assign(this, {request, show, take});
    this.found = null;  // {text, panel}
    this.searching = false;
    this.progress = make("p", {class: "said", role: "status", hidden: true});
    this.go = button("Search for a faster order", () => this.search(), {class: "main"});
    this.halt = button("Stop", () => this.stop(), {disabled: true});
    this.choice = row(button("Apply", () => this.takeIt(), {class: "main"}), button("Discard", () => this.drop()));
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
    const gap = bound > 0 ? `${(100 * (makespan / bound - 1)).toFixed(1)} %` : "an unknown amount";
    return `${seconds} s: makespan ${number(makespan)} by ${origin}; at most ${gap} above the lower bound`;
  }

  /** Shows the found order in the format of the user's text, unless that text has changed meanwhile. */
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
