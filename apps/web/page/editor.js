"use strict";
// Edits of a schedule's text (JSON or CSV) that keep its other content.

function isJson(text) {
  return /^\s*[{[]/.test(text);
}

/** Returns the rows of cells of a CSV, and its header line or null. */
function csvRows(text) {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const header = lines.length > 0 && lines[0].startsWith("#") ? lines.shift() : null;
  return {header, rows: lines.map((line) => line.split(",").map((cell) => cell.trim()))};
}

function csvText({header, rows}) {
  return [...(header === null ? [] : [header]), ...rows.map((cells) => cells.join(","))].join("\n") + "\n";
}

/** Returns the schedule as JSON with one line per worker, as `chimera schedule` writes it. */
function jsonText(schedule) {
  const {workers, ...rest} = schedule;
  const rows = workers.map((ops) => `  [${ops.map((op) => JSON.stringify(op)).join(", ")}]`).join(",\n");
  return `${JSON.stringify(rest, null, 1).replace(/\n\}$/, "")},\n "workers": [\n${rows}]}\n`;
}

/** Returns the text with its rows (cells of CSV, ops of JSON) replaced by `change(rows)`. */
function withRows(text, change) {
  if (isJson(text)) {
    const schedule = JSON.parse(text);
    schedule.workers = change(schedule.workers);
    return jsonText(schedule);
  }
  const csv = csvRows(text);
  return csvText({header: csv.header, rows: change(csv.rows)});
}

/** Returns the indices of the ops in a row; empty cells of a CSV are idle slots. */
function opCells(row) {
  return [...row.keys()].filter((i) => row[i] !== "" && row[i] !== null);
}

/** Returns the text with a worker's op moved from position `from` to position `to`. */
function withMovedOp(text, worker, from, to) {
  return withRows(text, (rows) => rows.map((row, w) => {
    if (w !== worker) return row;
    const cells = opCells(row).map((i) => row[i]);
    cells.splice(to, 0, ...cells.splice(from, 1));
    return cells;
  }));
}

function withoutOp(text, worker, position) {
  return withRows(text, (rows) => rows.map((row, w) => {
    if (w !== worker) return row;
    const cells = opCells(row).map((i) => row[i]);
    cells.splice(position, 1);
    return cells;
  }));
}

/** Previous texts, for undo and redo. */
class History {
  constructor() {
    this.before = [];
    this.after = [];
  }

  push(text) {
    if (this.before[this.before.length - 1] === text) return;
    this.before.push(text);
    if (this.before.length > 200) this.before.shift();
    this.after = [];
  }

  undo(text) {
    if (this.before.length === 0) return text;
    this.after.push(text);
    return this.before.pop();
  }

  redo(text) {
    if (this.after.length === 0) return text;
    this.before.push(text);
    return this.after.pop();
  }
}
