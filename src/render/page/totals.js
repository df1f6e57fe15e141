"use strict";
// Table of totals and legend of a picture.

function element(name, text, parent, className) {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  parent.append(made);
  return made;
}

/** The table's columns: heading, explanation, text of a panel, and a number where less is better. */
const kColumns = [
  ["makespan", "time when the last op ends", (p) => number(p.opsEnd), (p) => p.opsEnd],
  ["with all-reduce", "time when all gradient all-reduces and all updates have ended",
   (p) => p.totals.withAllReduce === null ? "–" : number(p.totals.withAllReduce), (p) => p.totals.withAllReduce],
  ["lower bound", "no order of these ops on these workers is faster", (p) => number(p.lowerBound)],
  ["bubble ratio", "idle time of all workers / (workers × makespan)", (p) => number(p.bubbleRatio)],
  ["weight copies", "largest weights on one worker; unit: one worker's share of one model copy",
   (p) => number(p.totals.weightCopies)],
  ["peak activations", "largest activations on one worker; unit: one micro-batch on a worker's share of the model",
   (p) => `${number(p.totals.peakUnits)} units`],
  ["messages", "messages between workers in one step", (p) => p.totals.messages.toLocaleString("en")],
  ["message volume", "volume of all messages in one step", (p) => p.totals.messageVolume],
  ["all-reduce volume", "volume of all gradient all-reduces of one step", (p) => p.totals.allReduceVolume],
];

/** Fills a table with a row for each panel, compared with the first. */
function fillTotals(table, panels) {
  table.replaceChildren();
  const head = element("tr", "", element("thead", "", table));
  element("th", "schedule", head).scope = "col";
  for (const [name, meaning] of kColumns) {
    const cell = element("th", name, head);
    cell.title = meaning;
    cell.scope = "col";
  }
  const body = element("tbody", "", table);
  for (const panel of panels) {
    const row = element("tr", "", body);
    element("td", panel.title, row);
    for (const [, , text, value] of kColumns) {
      const cell = element("td", text(panel), row);
      if (!value || panel === panels[0] || !value(panel) || !value(panels[0])) continue;
      const change = (value(panel) / value(panels[0]) - 1) * 100;
      element("span", ` ${change > 0 ? "+" : ""}${change.toFixed(1)} %`, cell, change > 0 ? "worse" : "better").title =
          `compared with ${panels[0].title}`;
    }
  }
}

function legendEntry(legend, name, paint) {
  const entry = element("span", "", legend);
  const canvas = element("canvas", "", entry);
  canvas.width = 26;
  canvas.height = 14;
  canvas.setAttribute("aria-hidden", "true");
  paint(canvas.getContext("2d"));
  element("span", name, entry);
}

/** Fills an element with the legend of the colors and hatches of the plot's panels. */
function fillLegend(legend, {picture: {theme}, view}) {
  legend.replaceChildren();
  const {panels} = view;
  const swatch = (...fills) => (context) => {
    for (const fill of fills) {
      context.fillStyle = fill;
      context.fillRect(0, 0, 26, 14);
    }
  };
  const used = (member, column) => panels.some((panel) => panel[member][column].length > 0);
  kKinds.forEach((name, kind) => {
    if (panels.some((panel) => panel.ops.kind.includes(kind))) {
      legendEntry(legend, `${kLetters[kind]} ${name}`, swatch(panels[0].fills[kind][0]));
    }
  });
  const several = panels.find((panel) => panel.replicas.length > 1);
  several?.replicas.forEach((replica, r) => {
    const fills = several.fills.slice(0, 1).map((shades) => shades[r * shades.length / several.replicas.length]);
    legendEntry(legend, `replica ${r}${replica.name ? ` (${replica.name})` : ""}`,
                swatch(...fills, ...(replica.hatched ? [theme.replica] : [])));
  });
  const sliced = panels.find((panel) => panel.ops.slice?.length > 0);
  if (sliced) {
    const fills = sliced.fills[sliced.ops.kind[0]];  // replica by replica
    legendEntry(legend, "later slices are paler", swatch(fills[fills.length / sliced.replicas.length - 1]));
  }
  if (used("allReduces", "stage")) legendEntry(legend, "all-reduce", swatch(page.allReduceColor));
  if (used("updates", "start")) legendEntry(legend, "optimizer step", swatch(page.updateColor));
  page.causes.forEach((cause, c) => {
    if (panels.some((panel) => panel.bubbles.cause.includes(c))) {
      legendEntry(legend, `idle: ${cause.name}`, swatch(theme.causes[c].hatched));
    }
  });
  const remembered = panels.find((panel) => panel.hasMemory);
  if (remembered && view.memory) {
    legendEntry(legend, `memory, full height ${remembered.amount(view.mostMemory(remembered))}`, swatch(theme.memory));
  }
}
