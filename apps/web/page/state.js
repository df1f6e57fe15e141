"use strict";
// What the page's address keeps after its #: the room in view and what is chosen there.

const state = readState();

function readState() {
  const [room, text] = location.hash.slice(1).split("=", 2);
  const read = {room: room || "schedules", rooms: {}};
  try {
    if (text) read.rooms[read.room] = JSON.parse(decodeText(text));
  } catch {
    // an address that was cut or edited: as if there were none
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

/** What is chosen in a room, by default `usual`. Fields of another type than usual are those of no page of ours. */
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
