"use strict";
// Visible part of the panels: time runs to the right, panels and their workers are stacked.

const kAxisHeight = 26;
const kTitleHeight = 24;
const kPanelGap = 10;
const kGutter = 76;  // names of the workers

class View {
  constructor(panels) {
    this.left = kGutter;
    this.memory = true;
    this.pinned = null;  // highlighted micro-batch
    this.setPanels(panels);
    this.resize(800, 600);
    this.fit();
  }

  setPanels(panels) {
    this.panels = panels;
    this.longest = Math.max(...panels.map((panel) => panel.makespan), 1e-300);
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.plotWidth = Math.max(1, width - this.left);
  }

  /** Everything in time; all rows too, if they stay high enough to be seen. */
  fit() {
    this.startTime = 0;
    this.scale = (this.plotWidth - 12) / this.longest;  // pixels per unit of time
    const rows = this.panels.reduce((sum, panel) => sum + panel.workers, 0);
    const room = this.height - kAxisHeight - this.panels.length * (kTitleHeight + kPanelGap);
    this.rowHeight = Math.min(64, Math.max(5, room / rows));
    this.top = 0;  // pixels scrolled
    this.keepInSight();
    this.fitted = true;  // until the user moves it
  }

  get endTime() {
    return this.startTime + this.plotWidth / this.scale;
  }

  x(time) {
    return this.left + (time - this.startTime) * this.scale;
  }

  timeAt(x) {
    return this.startTime + (x - this.left) / this.scale;
  }

  /** Calls visit(panel, y of its title) for every panel. */
  eachPanel(visit) {
    let y = kAxisHeight - this.top;
    for (const panel of this.panels) {
      visit(panel, y);
      y += kTitleHeight + panel.workers * this.rowHeight + kPanelGap;
    }
  }

  yOf(panel, worker) {
    let row = 0;
    this.eachPanel((each, y) => {
      if (each === panel) row = y + kTitleHeight + worker * this.rowHeight;
    });
    return row;
  }

  /** The panel and worker at height y; null between rows. */
  rowAt(y) {
    let found = null;
    this.eachPanel((panel, top) => {
      const row = y - top - kTitleHeight;
      if (y < kAxisHeight || row < 0 || row >= panel.workers * this.rowHeight) return;
      const worker = Math.floor(row / this.rowHeight);
      found = {panel, worker, offset: row - worker * this.rowHeight};
    });
    return found;
  }

  zoom(factor, x) {
    const time = this.timeAt(x);
    const least = (this.plotWidth - 12) / this.longest / 2;
    this.scale = Math.min(Math.max(this.scale * factor, least), least * 1e6);
    this.startTime = time - (x - this.left) / this.scale;
    this.fitted = false;
    this.keepInSight();
  }

  zoomRows(factor, y) {
    const anchor = (y - kAxisHeight + this.top) / this.rowHeight;
    this.rowHeight = Math.min(120, Math.max(3, this.rowHeight * factor));
    this.top = anchor * this.rowHeight - (y - kAxisHeight);
    this.fitted = false;
    this.keepInSight();
  }

  pan(dx, dy) {
    this.startTime -= dx / this.scale;
    this.top -= dy;
    this.fitted = false;
    this.keepInSight();
  }

  keepInSight() {
    const span = this.plotWidth / this.scale;
    const latest = Math.max(this.longest - span * 0.1, 0);
    this.startTime = Math.min(Math.max(this.startTime, -span * 0.5), latest);
    if (span >= this.longest) this.startTime = Math.min(this.startTime, 0);
    const rows = this.panels.reduce(
        (sum, panel) => sum + kTitleHeight + panel.workers * this.rowHeight + kPanelGap, kAxisHeight);
    this.top = Math.min(Math.max(this.top, 0), Math.max(0, rows - this.height));
  }

  /** The scale of a panel's memory lanes: one for all panels that measure in the same unit. */
  mostMemory(panel) {
    return Math.max(...this.panels.filter((each) => each.inBytes === panel.inBytes).map((each) => each.mostMemory));
  }

  /** Round times about 90 pixels apart. */
  ticks() {
    const rough = 90 / this.scale;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const ticks = [];
    for (let i = Math.max(0, Math.ceil(this.startTime / step)); i * step <= this.endTime; ++i) ticks.push(i * step);
    return ticks;
  }
}
