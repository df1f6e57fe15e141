"use strict";
// Puts the page together: table, legend, picture and controls.

const page = JSON.parse(document.getElementById("data").textContent);
const panels = page.panels.map((raw) => new Panel(raw));
const shown = new Plot(document.getElementById("plot"), panels);
const {root: plot, tip, view, picture} = shown;

function start() {
  const byId = (id) => document.getElementById(id);
  const keys = shown.keys();
  linkBox(byId("critical"), shown, (checked) => picture.show.critical = checked);
  linkBox(byId("arrows"), shown, (checked) => picture.show.arrows = checked);
  linkBox(byId("memory"), shown, (checked) => view.memory = checked);
  byId("fit").onclick = keys.f;
  byId("lower").onclick = keys["["];
  byId("higher").onclick = keys["]"];
  const boxes = {c: "critical", a: "arrows", m: "memory"};
  for (const [key, id] of Object.entries(boxes)) keys[key] = () => byId(id).click();
  listenToKeys(document, keys);
  shown.onRestyle = () => fillLegend(byId("legend"), shown);
  fillTotals(byId("totals"), panels);
  picture.resize();
  view.fit();
  shown.onRestyle();
  shown.redraw();
}

start();
