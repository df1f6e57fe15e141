"use strict";
// The picture that moves on the start page: a schedule runs, and the time that has not come yet is pale.

const kShown = JSON.parse(document.getElementById("shown").textContent);  // {page, schedules: [{title, words, panel}]}
page = kShown.page;

function startPicture() {
  const place = document.getElementById("moving");
  const root = plotParts("a schedule that runs; the table of lessons explains it");
  const legend = make("div", {class: "legend", "aria-label": "legend"});
  const words = make("p", {role: "status"});
  const panels = kShown.schedules.map(({title, panel}) => Object.assign(new Panel(panel), {title}));
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const longest = Math.max(...panels.map((panel) => panel.makespan));
  let now = 0;
  let time = calm.matches ? longest : 0;
  let running = null;
  let plot = null;
  const range = make("input", {type: "range", min: 0, max: 1000, value: 0, "aria-label": "time"});
  const play = button("Pause", () => running === null ? run() : pause());
  const choices = kShown.schedules.map(({title}, i) => button(title, () => choose(i), {"aria-pressed": "false"}));

  function choose(i) {
    now = i;
    choices.forEach((each, k) => each.setAttribute("aria-pressed", String(k === i)));
    words.textContent = kShown.schedules[i].words;
    plot.show([panels[i]]);
    plot.view.longest = longest;  // one scale, so that shorter steps look shorter
    plot.view.fit();
    fillLegend(legend, plot);
    if (!calm.matches) run(0);
    plot.redraw();
  }

  function moveTo(next) {
    time = next;
    range.value = 1000 * time / longest;
    plot.redraw();
  }

  function run(from = time >= longest ? 0 : time) {
    if (running !== null) cancelAnimationFrame(running);
    time = from;
    let before = performance.now();
    play.textContent = "Pause";
    const tick = (stamp) => {
      const next = Math.min(longest, time + Math.max(0, stamp - before) / 1000 * longest / 9);
      before = stamp;
      moveTo(next);
      if (next < longest) running = requestAnimationFrame(tick);
      else pause();
    };
    running = requestAnimationFrame(tick);
  }

  function pause() {
    if (running !== null) cancelAnimationFrame(running);
    running = null;
    play.textContent = "Play";
  }

  function veil() {
    const {picture: {base: context, theme}, view} = plot;
    plot.picture.inPlot(context, () => {
      const x = view.x(time);
      context.fillStyle = theme.paper;
      context.globalAlpha = 0.78;
      context.fillRect(x, kAxisHeight, view.width, view.height);
      context.globalAlpha = 1;
      context.fillStyle = theme.mark;
      context.fillRect(x, kAxisHeight, 1.5, view.height);
    });
  }

  place.append(make("div", {class: "bar", role: "group", "aria-label": "schedule"}, choices), words, legend, root,
               make("div", {class: "row"}, play, range));
  root.style.height = `${heightOf([panels[0]])}px`;
  plot = new Plot(root, [panels[0]]);
  plot.view.memory = false;
  plot.onRestyle = () => fillLegend(legend, plot);
  plot.afterDraw = veil;
  listenToKeys(root, plot.keys());
  range.addEventListener("input", () => {
    pause();
    moveTo(range.valueAsNumber / 1000 * longest);
  });
  plot.picture.resize();
  if (calm.matches) pause();
  choose(0);
}

startPicture();
