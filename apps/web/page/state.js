"use strict";
// State in the page's address after the #: the visible room and its settings.

const state = readState();

function readState() {
  const [room, text] = location.hash.slice(1).split("=", 2);
  const read = {room: room || "schedules", rooms: {}};
  try {
    if (text) read.rooms[read.room] = JSON.parse(decodeText(text));
  } catch {
    // The address was cut or edited; use the defaults
  }
  return read;
}

function encodeText(text) {
  let bytes = "";
  for (const byte of new TextEncoder().encode(text)) bytes += String.fromCharCode(byte);
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function decodeText(text) {
  const bytes = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder().decode(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0)));
}

/** Returns the settings of a room, `usual` by default. Fields of a wrong type get their defaults. */
function chosenIn(room, usual) {
  const kept = state.rooms[room] ?? {};
  for (const [name, value] of Object.entries(usual)) {
    if (typeof kept[name] !== typeof value || Array.isArray(kept[name]) !== Array.isArray(value)) kept[name] = value;
  }
  state.rooms[room] = kept;
  return kept;
}

let saving = null;
function saveState() {
  clearTimeout(saving);
  saving = setTimeout(() => {
    const text = encodeText(JSON.stringify(state.rooms[state.room] ?? {}));
    history.replaceState(null, "", `#${state.room}=${text}`);
  }, 150);
}
