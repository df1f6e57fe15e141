"use strict";
// Starts the page. Each tab has a room: the section with its content.

const machines = JSON.parse(document.getElementById("machines").textContent);

const kRooms = [
  {name: "schedules", title: "Schedules", build: schedulesRoom},
  {name: "own", title: "Editor", build: ownRoom},
  {name: "model", title: "Model", more: " and partition", build: modelRoom},
  {name: "plan", title: "Plan", build: planRoom},
];
const places = {};  // section elements by room name
const rooms = {};   // {open} by room name

/** Builds a room at its first use. */
for (const {name, build} of kRooms) {
  let built = null;
  Object.defineProperty(rooms, name, {get: () => built ??= build(places[name]) ?? {}});
}

function goTo(name) {
  state.room = name;
  for (const each of kRooms) {
    const tab = document.getElementById(`tab-${each.name}`);
    const isShown = each.name === name;
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    places[each.name].hidden = !isShown;
  }
  void rooms[name];
  saveState();
}

function makeTabs() {
  const tabs = document.getElementById("tabs");
  for (const {name, title, more} of kRooms) {
    places[name] = make("section", {class: "room", role: "tabpanel", id: `room-${name}`,
                                    "aria-labelledby": `tab-${name}`, hidden: true});
    document.getElementById("rooms").append(places[name]);
    tabs.append(make("button", {type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `room-${name}`,
                                onclick: () => goTo(name)}, title,
                     more ? make("span", {class: "wide"}, more) : null));
  }
  tabs.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const names = kRooms.map((each) => each.name);
    const next = names[(names.indexOf(state.room) + step + names.length) % names.length];
    goTo(next);
    document.getElementById(`tab-${next}`).focus();
  });
}

async function startApp() {
  makeTabs();
  const waiting = document.getElementById("waiting");
  try {
    catalog = await quickEngine.ask({do: "catalog"});
    page = catalog.page;
    waiting.hidden = true;
    goTo(kRooms.some((each) => each.name === state.room) ? state.room : "schedules");
  } catch (error) {
    say(waiting, `The playground cannot start: ${error.message}`, true);
  }
}

window.addEventListener("hashchange", () => location.reload());
startApp();
