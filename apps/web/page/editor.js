"use strict";
// A schedule's text, as rows of cells: JSON or CSV, edited without losing what else it says.

function isJson(text) {
  return /^\s*[{[]/.test(text);
}

/** Rows of cells of a CSV, and the line before them. */
function csvRows(text) {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const header = lines.length > 0 && lines[0].startsWith("#") ? lines.shift() : null;
  return {header, rows: lines.map((line) => line.split(",").map((cell) => cell.trim()))};
}

function csvText({header, rows}) {
  return [...(header === null ? [] : [header]), ...rows.map((cells) => cells.join(","))].join("\n") + "\n";
}

/** The schedule in JSON with a line for each worker, as the program writes it. */
function jsonText(schedule) {
  const {workers, ...rest} = schedule;
  const rows = workers.map((ops) => `  [${ops.map((op) => JSON.stringify(op)).join(", ")}]`).join(",\n");
  return `${JSON.stringify(rest, null, 1).replace(/\n\}$/, "")},\n "workers": [\n${rows}]}\n`;
}

/** The text with the rows that `change` makes of its own: cells of a CSV, ops of JSON. */
function withRows(text, change) {
  if (isJson(text)) {
    const schedule = JSON.parse(text);
    schedule.workers = change(schedule.workers);
    return jsonText(schedule);
  }
  const csv = csvRows(text);
  return csvText({header: csv.header, rows: change(csv.rows)});
}

/** Places of ops in a row: cells of a CSV may be empty, for idle slots. */
function opCells(row) {
  return [...row.keys()].filter((i) => row[i] !== "" && row[i] !== null);
}

/** The text with the op at `from` of a worker's ops at `to`. */
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

/** Texts as they were, to go back to and forth. */
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
